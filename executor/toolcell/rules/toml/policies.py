"""The policy of a toolcell.toml, and the denials of a project's file."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from toolcell.rules.policy import PolicyRule, TierPolicy, rule_name
from toolcell.rules.toml.complaints import Complaint

Table = Mapping[str, Any]
NO_DENIAL = TierPolicy(elevated="allow")
"""The policy to which a project's file adds denials."""
PROJECT_GLOBS: Final = 2_000
"""The most characters of all globs in a project's file together. Matching the worst of these with a text of
`MATCHED_CHARS` takes about 0.4 s, in which the event loop does nothing else."""
_NOT_DENY = "is no denial"


def overlaid_policy(below: TierPolicy, table: Table, inner: TierPolicy | None = None) -> TierPolicy:
    """The policy overlaid by a table without complaints. Tables are merged key by key; `rules` replaces the rules
    below. `inner` is what a new policy for a kind, an agent or a channel begins with."""
    inner = TierPolicy() if inner is None else inner
    changed: dict[str, Any] = {}
    for name, value in table.items():
        match name:
            case "rules":
                changed[name] = tuple(PolicyRule(**each) for each in value)
            case "tools":
                changed[name] = {**below.tools, **value}
            case "kinds" | "agents" | "channels":
                known: Mapping[str, TierPolicy] = getattr(below, name)
                new = {key: overlaid_policy(known.get(key, inner), each, inner) for key, each in value.items()}
                changed[name] = {**known, **new}
            case _:
                changed[name] = value
    return replace(below, **changed)


def add_files(files: dict[str, str], table: Table, file: str, name: str) -> None:
    """Note the file of each rule in a table without complaints, by its name in explanations. `name` is the policy's
    own."""
    for key, value in table.items():
        match key:
            case "rules":
                for replaced in [each for each in files if each.startswith(f"{name}.rules[")]:
                    del files[replaced]
                files.update((f"{name}.{rule_name(at, rule.get('name', ''))}", file) for at, rule in enumerate(value))
            case "tools":
                files.update((f"{name}.tools.{tool}", file) for tool in value)
            case "kinds" | "agents" | "channels":
                for inside, each in value.items():
                    add_files(files, each, file, f"{name}.{key}.{inside}")
            case _:
                files[f"{name}.{key}"] = file


def too_many_globs(table: Table) -> Iterator[Complaint]:
    """The complaint about globs that together would take too long to match, if they do."""
    total = sum(map(len, _globs(table)))
    if total > PROJECT_GLOBS:
        what = f"has globs of {total:,} characters together, more than {PROJECT_GLOBS:,}, which would slow every call."
        yield (), what


def _globs(table: Table) -> Iterator[str]:
    for rule in table.get("rules", ()):
        yield from rule.get("arguments", {}).values()
    for name in ("kinds", "agents", "channels"):
        for inside in table.get(name, {}).values():
            yield from _globs(inside)


def no_denials(table: Table) -> Iterator[Complaint]:
    """Each decision in a policy that is not "deny", at its key."""
    for name, value in table.items():
        match name:
            case "kinds" | "agents" | "channels":
                for key, each in value.items():
                    yield from (((name, key, *inner), what) for inner, what in no_denials(each))
            case "tools":
                yield from (((name, key), _NOT_DENY) for key, each in value.items() if each != "deny")
            case "rules":
                wrong = (index for index, rule in enumerate(value) if rule["decision"] != "deny")
                yield from (((name, index, "decision"), _NOT_DENY) for index in wrong)
            case _ if value != "deny":
                yield (name,), _NOT_DENY
            case _:
                pass
