"""`toolcell doctor`: run the probe in a clean process, and print its findings for people or for programs."""

import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import Any, cast

import click

from toolcell.errors import ConfigError
from toolcell.rules.credentials import Credential
from toolcell.rules.policy import PROJECT, PolicyRule, TierPolicy
from toolcell.rules.profile import Profile
from toolcell.rules.toml import Config
from toolcell.rules.toml.load import load_config
from toolcell_sandbox.explain import essentials
from toolcell_sandbox.network import HostNetwork, NoNetwork
from toolcell_sandbox.promises import PROMISES, PROTECTED_NAMES
from toolcell_sandbox.report import SandboxReport, by_cure, wholes
from toolcell_tools.capability import SessionKind
from toolcell_tools.preview import printable

from .report_lines import IDENTITY, mechanism_lines, promise_lines, promise_summary

_ShownRule = dict[str, object]
PROBE_S = 30.0  # seconds; the probe takes 10 ms


def run(*, as_json: bool, kind: str | None = None, file: str | None = None, verbose: bool = False) -> int:
    """Print the findings, problems first. Return the exit status."""
    config, wrong = _settings(file)
    if wrong is not None:
        click.echo(f"The settings are wrong:\n{wrong}", err=True)
    try:
        report = probe()
    except ProbeFailed as failure:
        click.echo(f"toolcell doctor: {failure}", err=True)
        return 2
    if as_json:
        click.echo(json.dumps(_findings(report, config, kind), indent=2))
    else:
        for line in _lines(report, config, kind, verbose=verbose):
            click.echo(line)
    if wrong is not None:
        return 2
    return 1 if report.missing else 0


def _settings(file: str | None) -> tuple[Config, None] | tuple[None, ConfigError]:
    try:
        return load_config(".", file=file), None
    except ConfigError as error:
        return None, error


class ProbeFailed(Exception):
    """The probe gave no report."""


def probe() -> SandboxReport:
    """The report of the probe, from a fresh interpreter: the probe forks, so it needs a single thread."""
    command = [sys.executable, "-I", "-m", "toolcell_sandbox.doctor"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise ProbeFailed(f"the probe did not end within {PROBE_S:g} s. Run it by hand: {' '.join(command)}") from None
    try:
        return SandboxReport.from_wire(cast("dict[str, Any]", json.loads(done.stdout)))
    except (ValueError, TypeError, KeyError):
        said = done.stderr.strip().rpartition("\n")[2] or "nothing"
        if "No module named" in said:
            said += " (-I leaves out PYTHONPATH and packages of `pip install --user`; install toolcell into a virtual "
            said += "environment)"
        raise ProbeFailed(
            f"the probe ended with status {done.returncode} and printed: {said}. Run it by hand: {' '.join(command)}"
        ) from None


def machine() -> dict[str, str]:
    """The facts about the machine for a bug report."""
    return {"kernel": platform.release(), "machine": platform.machine(), "python": platform.python_version()}


def _findings(report: SandboxReport, config: Config | None, kind: str | None) -> dict[str, object]:
    found = {"ok": not report.missing, **machine(), **report.to_wire()}
    found["promises"] = [promise.to_json(report.on) for promise in PROMISES]
    found["protected_names"] = PROTECTED_NAMES.to_json(report.on)
    if config is not None:
        found["settings"] = [str(path) for path in config.files]
        found["credentials"] = {place: [_credential(one) for one in all] for place, all in config.credentials.items()}
        found["mcpServers"] = {name: server.shown for name, server in config.servers.items()}
        found["policy"] = [*_rules(config)]
        found["profiles"] = {each.value: _shown(config.profiles[each]) for each in _kinds(kind)}
    return found


def _shown(profile: Profile) -> dict[str, object]:
    """A profile for bug reports, without the values of environment variables, which may be secrets."""
    shown = {**profile.to_wire(), "env": sorted(profile.env), "http": [*profile.http]}
    return {**shown, "explained": profile.explain().splitlines()}


def _credential(credential: Credential) -> str:
    """The header and the source of a credential, and whether the secret can be read. Never the secret."""
    said = _unread(credential)
    return f"{credential.header}, from {credential.source}{f': {said}' if said else ''}"


def _unread(credential: Credential) -> str:
    """The reason why the credential cannot be read. Empty if it can be read."""
    try:
        credential.read()
    except ValueError as error:
        return str(error)
    return ""


def _kinds(kind: str | None) -> list[SessionKind]:
    return list(SessionKind) if kind is None else [SessionKind(kind)]


def _lines(report: SandboxReport, config: Config | None, kind: str | None, *, verbose: bool) -> Iterator[str]:
    """The problems, each with its cure, then the requested findings."""
    mistakes = [*_missing(report, config), *_unreadable(config)]
    yield from mistakes
    yield from [""] if mistakes else []
    if verbose:
        yield from _long(report, config, kind)
    elif kind is None:
        yield from _short(report, config)
    elif config is not None:
        yield from _profile_lines(config, kind)


def _missing(report: SandboxReport, config: Config | None) -> Iterator[str]:
    """The missing mechanisms, grouped by cure, and what their lack means for a supervisor."""
    for cure, group in by_cure(report.missing).items():
        yield f"Missing: {', '.join(mechanism.name for mechanism in group)}: {group[0].detail}"
        yield f"  cure: {cure}"
    if not report.missing:
        return
    if config is not None and config.allow_missing.issuperset(mechanism.name for mechanism in wholes(report.missing)):
        yield "The settings allow this: a supervisor with these settings starts here."
        return
    yield f"A supervisor refuses to start here. To do without, knowingly: {report.do_without()}"


def _unreadable(config: Config | None) -> Iterator[str]:
    """The credentials that cannot be read."""
    for place, credentials in () if config is None else config.credentials.items():
        for each in credentials:
            if said := _unread(each):
                yield f"Requests to {place} would carry {each.header}, from {each.source}: {said}"


def _short(report: SandboxReport, config: Config | None) -> Iterator[str]:
    about = machine()
    yield f"Linux {about['kernel']} on {about['machine']}, Python {about['python']}"
    yield f"Running as {IDENTITY.get(report.identity, report.identity)}"
    yield f"{len(report.on)} of {len(report.mechanisms)} mechanisms are on"
    yield from (f"  {each.name}: {each.detail} instead" for each in report.mechanisms if each.state == "substituted")
    yield from promise_summary(report)
    if config is not None:
        yield _files(config)
        yield from (f"  {names}: {essentials(profile)}" for names, profile in _profiles(config, None))
        for place, credentials in config.credentials.items():
            yield f"  requests to {place} carry {', '.join(each.header for each in credentials)}"
        yield from (f"  {line}" for line in _servers(config))
        yield from (f"  {line}" for line in _rule_lines(config, only_files=True))
    if not report.missing:
        yield "Everything that toolcell requires is here."
    yield "More: toolcell doctor --verbose, --profile KIND, --json"


def _long(report: SandboxReport, config: Config | None, kind: str | None) -> Iterator[str]:
    about = machine()
    yield f"Linux {about['kernel']} on {about['machine']}, Python {about['python']}"
    yield f"Running as {IDENTITY.get(report.identity, report.identity)}\n"
    yield "What a cell gets from this kernel:"
    yield from mechanism_lines(report)
    yield "\nWhat code in a cell cannot do here, and what that rests on:"
    yield from promise_lines(report)
    yield from [] if config is None else ["", *_profile_lines(config, kind)]
    yield from (
        []
        if config is None or kind is not None
        else ["\nThe policy:", *(f"  {line}" for line in _rule_lines(config, only_files=False))]
    )
    if not report.missing:
        yield "\nEverything that toolcell requires is here."


def _files(config: Config) -> str:
    return f"Settings: {', '.join(map(str, config.files)) or 'the presets; there is no toolcell.toml'}"


def _profiles(config: Config, kind: str | None) -> Iterator[tuple[str, Profile]]:
    """The distinct profiles, each with the session kinds that have it."""
    for profile, group in groupby(_kinds(kind), lambda each: config.profiles[each]):
        yield " or ".join(each.value for each in group), profile


def _profile_lines(config: Config, kind: str | None) -> Iterator[str]:
    yield _files(config)
    for names, profile in _profiles(config, kind):
        yield f"\nThe widest rights of a cell of a {names} session:"
        yield from (f"  {line}" for line in profile.explain().splitlines())
        if profile.reach != NoNetwork():
            what = "is not kept" if isinstance(profile.reach, HostNetwork) else "is kept except for those hosts"
            yield f"  Its profile grants a network: promise 3 {what}."
    for place, credentials in config.credentials.items():
        yield f"\nRequests to {place} carry {'; and '.join(map(_credential, credentials))}"
    if kind is None and config.servers:
        yield from ("", *_servers(config))


def _servers(config: Config) -> Iterator[str]:
    """The MCP servers of the settings, without arguments and values, which may be secrets."""
    for name, server in config.servers.items():
        shown = server.shown
        names = ", ".join([*server.env, *server.headers])
        carries = f", with {names}" if names else ""
        yield f"MCP server {name}: {shown.get('command') or shown['url']}{carries}, tools of tier {server.tier.value}"


def _rules(config: Config) -> Iterator[_ShownRule]:
    """Every rule of the policy and every denial of a project, with its conditions and its file."""
    for name, said in (config.policy or TierPolicy()).listed():
        yield _shown_rule(name, said, config)
    for denials in config.denials:
        for name, said in denials.listed(PROJECT):
            if name in config.rule_files:
                yield _shown_rule(name, said, config)


def _rule_lines(config: Config, *, only_files: bool) -> Iterator[str]:
    """A line for each rule, or only for the rules that a file has."""
    for rule in _rules(config):
        if rule["file"] or not only_files:
            conditions = "".join(f", {key} {value}" for key, value in _conditions(rule))
            origin = "" if only_files or not rule["file"] else f"  ({rule['file']})"
            yield printable(f"{rule['rule']}: {rule['decision']}{conditions}{origin}")


def _shown_rule(name: str, said: str | PolicyRule, config: Config) -> _ShownRule:
    decision = said.decision if isinstance(said, PolicyRule) else said
    shown: _ShownRule = {"rule": name, "decision": decision, "file": config.rule_files.get(name, "")}
    if not isinstance(said, PolicyRule):
        return shown
    given = {key: getattr(said, key) for key in ("tool", "tier", "kind", "agent", "channel")}
    given = {key: str(value) for key, value in given.items() if value}
    return {**shown, **given, "arguments": dict(said.arguments)}


def _conditions(rule: _ShownRule) -> Iterator[tuple[str, str]]:
    for key, value in rule.items():
        if isinstance(value, dict):
            yield from ((name, repr(glob)) for name, glob in cast("dict[str, str]", value).items())
        elif key not in ("rule", "decision", "file"):
            yield key, str(value)
