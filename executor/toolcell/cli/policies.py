"""The policy of the settings, for `toolcell doctor`: each rule by the name that denials and explanations have."""

from collections.abc import Iterator
from typing import cast

from toolcell.rules.policy import PROJECT, PolicyRule, TierPolicy
from toolcell.rules.toml import Config
from toolcell_tools.preview import printable

Shown = dict[str, object]


def rules(config: Config) -> Iterator[Shown]:
    """Every rule of the policy and every denial of a project, with its conditions and its file."""
    for name, said in (config.policy or TierPolicy()).listed():
        yield _shown(name, said, config)
    for denials in config.denials:
        for name, said in denials.listed(PROJECT):
            if name in config.rule_files:
                yield _shown(name, said, config)


def lines(config: Config, *, only_files: bool) -> Iterator[str]:
    """A line for each rule, or only for the rules that a file has."""
    for rule in rules(config):
        if rule["file"] or not only_files:
            conditions = "".join(f", {key} {value}" for key, value in _conditions(rule))
            origin = "" if only_files or not rule["file"] else f"  ({rule['file']})"
            yield printable(f"{rule['rule']}: {rule['decision']}{conditions}{origin}")


def _shown(name: str, said: str | PolicyRule, config: Config) -> Shown:
    decision = said.decision if isinstance(said, PolicyRule) else said
    shown: Shown = {"rule": name, "decision": decision, "file": config.rule_files.get(name, "")}
    if not isinstance(said, PolicyRule):
        return shown
    given = {key: getattr(said, key) for key in ("tool", "tier", "kind", "agent", "channel")}
    given = {key: str(value) for key, value in given.items() if value}
    return {**shown, **given, "arguments": dict(said.arguments)}


def _conditions(rule: Shown) -> Iterator[tuple[str, str]]:
    for key, value in rule.items():
        if isinstance(value, dict):
            yield from ((name, repr(glob)) for name, glob in cast("dict[str, str]", value).items())
        elif key not in ("rule", "decision", "file"):
            yield key, str(value)
