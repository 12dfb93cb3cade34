"""`toolcell doctor`: the probe, in a clean process of its own, and its findings for people or for programs."""

import json
import platform
import subprocess
import sys
from typing import Any, cast

import click

from toolcell_sandbox.report import SandboxReport

from .mechanisms import IDENTITY, lines

PROBE_S = 30.0  # it takes 10 ms; a machine that needs longer is stuck


def run(*, as_json: bool) -> int:
    """Print the findings; return the exit status."""
    try:
        report = probe()
    except ProbeFailed as failure:
        click.echo(f"toolcell doctor: {failure}", err=True)
        return 2
    if as_json:
        found = {"ok": not report.missing, **machine(), **report.to_wire()}
        click.echo(json.dumps(found, indent=2))
    else:
        _print(report)
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


def _print(report: SandboxReport) -> None:
    about = machine()
    click.echo(f"Linux {about['kernel']} on {about['machine']}, Python {about['python']}")
    click.echo(f"Running as {IDENTITY.get(report.identity, report.identity)}\n")
    click.echo("What a cell gets from this kernel:")
    for line in lines(report):
        click.echo(line)
    click.echo()
    if not report.missing:
        click.echo("Everything that toolcell requires is here.")
        return
    names = [mechanism.name for mechanism in report.missing]
    click.echo(f"Missing: {', '.join(names)}. A supervisor refuses to start here.")
    click.echo(f"Mend it as above, or do without, knowingly: Supervisor(allow_missing={names!r}).")
