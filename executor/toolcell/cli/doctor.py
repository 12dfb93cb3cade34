"""`toolcell doctor`: the probe, in a clean process of its own, and its findings for people or for programs."""

import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import Any, cast

import click

from toolcell.config import Config, load_config
from toolcell.credentials import Credential
from toolcell.errors import ConfigError
from toolcell_sandbox.network import HostNetwork, NoNetwork
from toolcell_sandbox.profile import Profile
from toolcell_sandbox.report import SandboxReport
from toolcell_tools.capability import SessionKind

from . import promises
from .mechanisms import IDENTITY, lines

PROBE_S = 30.0  # it takes 10 ms; a machine that needs longer is stuck


def run(*, as_json: bool, kind: str | None = None, file: str | None = None) -> int:
    """Print the findings; return the exit status. What the machine offers is told even where the settings are wrong."""
    try:
        report = probe()
    except ProbeFailed as failure:
        click.echo(f"toolcell doctor: {failure}", err=True)
        return 2
    wrong: ConfigError | None = None
    config = None
    try:
        config = load_config(".", file=file)
    except ConfigError as error:
        wrong = error
    if as_json:
        click.echo(json.dumps(_findings(report, config, kind), indent=2))
    else:
        _print(report, config, kind)
    if wrong is not None:
        click.echo(f"The settings are wrong:\n{wrong}", err=True)
        return 2
    return 1 if report.missing else 0


class ProbeFailed(Exception):
    """The probe gave no report."""


def probe() -> SandboxReport:
    """The report of a fresh interpreter: the probe forks and needs a single thread, which this process may not have."""
    command = [sys.executable, "-I", "-m", "toolcell_sandbox.doctor"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise ProbeFailed(f"the probe did not end within {PROBE_S:g} s. Run it by hand: {' '.join(command)}") from None
    try:
        return SandboxReport.from_wire(cast("dict[str, Any]", json.loads(done.stdout)))
    except (ValueError, TypeError, KeyError):
        said = done.stderr.strip().rpartition("\n")[2] or "nothing"
        raise ProbeFailed(
            f"the probe ended with status {done.returncode} and said: {said}. Run it by hand: {' '.join(command)}"
        ) from None


def machine() -> dict[str, str]:
    """What a bug report needs beside the mechanisms."""
    return {"kernel": platform.release(), "machine": platform.machine(), "python": platform.python_version()}


def _findings(report: SandboxReport, config: Config | None, kind: str | None) -> dict[str, object]:
    found = {"ok": not report.missing, **machine(), **report.to_wire()}
    found["promises"] = [promise.to_json(report) for promise in promises.PROMISES]
    found["protected_names"] = promises.PROTECTED_NAMES.to_json(report)
    if config is not None:
        found["settings"] = [str(path) for path in config.files]
        found["credentials"] = {place: [_credential(one) for one in all] for place, all in config.credentials.items()}
        found["profiles"] = {each.value: _shown(config.profiles[each]) for each in _kinds(kind)}
    return found


def _shown(profile: Profile) -> dict[str, object]:
    """A profile without the values of its environment, which may be secrets: this goes into bug reports."""
    return {**profile.to_wire(), "env": sorted(profile.env), "explained": profile.explain().splitlines()}


def _credential(credential: Credential) -> str:
    """Which header, from where, and whether it is there; never the secret."""
    try:
        credential.read()
        state = ""
    except ValueError as error:
        state = f": {error}"
    return f"{credential.header}, from {credential.source}{state}"


def _kinds(kind: str | None) -> list[SessionKind]:
    return list(SessionKind) if kind is None else [SessionKind(kind)]


def _print(report: SandboxReport, config: Config | None, kind: str | None) -> None:
    about = machine()
    click.echo(f"Linux {about['kernel']} on {about['machine']}, Python {about['python']}")
    click.echo(f"Running as {IDENTITY.get(report.identity, report.identity)}\n")
    click.echo("What a cell gets from this kernel:")
    for line in lines(report):
        click.echo(line)
    click.echo("\nWhat code in a cell cannot do here, and what that rests on:")
    for line in promises.lines(report):
        click.echo(line)
    for line in () if config is None else _profile_lines(config, kind):
        click.echo(line)
    click.echo()
    if not report.missing:
        click.echo("Everything that toolcell requires is here.")
        return
    names = [mechanism.name for mechanism in report.missing]
    if config is not None and config.allow_missing.issuperset(names):
        click.echo(f"Missing: {', '.join(names)}. The settings allow that: a supervisor with them starts here.")
        return
    click.echo(f"Missing: {', '.join(names)}. A supervisor refuses to start here.")
    click.echo(f"Mend it as above, or do without, knowingly: Supervisor(allow_missing={names!r}).")


def _profile_lines(config: Config, kind: str | None) -> Iterator[str]:
    """The profiles, equal ones once."""
    yield f"\nSettings: {', '.join(map(str, config.files)) or 'the presets; there is no toolcell.toml'}"
    for profile, group in groupby(_kinds(kind), lambda each: config.profiles[each]):
        names = " or ".join(each.value for each in group)
        yield f"\nThe most that a cell of a {names} session may do:"
        yield from (f"  {line}" for line in profile.explain().splitlines())
        if profile.reach != NoNetwork():
            what = "is not kept" if isinstance(profile.reach, HostNetwork) else "is kept but for those hosts"
            yield f"  Its profile grants a network: promise 3 {what}."
    for place, credentials in config.credentials.items():
        yield f"\nRequests to {place} carry {'; and '.join(map(_credential, credentials))}"


def disassembly(*, allow_exec: bool) -> str:
    """The system call filter of this machine's cells that have no network, for reviewers."""
    from toolcell_sandbox.mechanisms import seccomp
    from toolcell_sandbox.mechanisms.disassembly import disassemble

    return disassemble(seccomp.program(allow_exec=allow_exec))
