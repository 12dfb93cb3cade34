"""`toolcell status`: a running supervisor, as it sees itself."""

import json
import time
from pathlib import Path
from typing import Any

import click

from toolcell.errors import UsageError
from toolcell.store.journal.narrative import agent_in
from toolcell_tools.preview import counted, printable

from .audit import directory_of

MOST_BYTES = 64 * 1024 * 1024
STALE_S = 5.0
"""A status that is older than this is not of a supervisor whose event loop runs."""


def run(state: str | None, *, as_json: bool) -> int:
    """Print the status. Returns the exit status: 0 if it runs and nothing is wrong, 1 otherwise, 2 for wrong use."""
    try:
        directory = directory_of(state)
        status = _read(directory.status)
        is_running = directory.is_written()
    except (UsageError, OSError, ValueError) as error:
        click.echo(printable(str(error)), err=True)
        return 2
    age_s = time.time() - status["at"]
    problems: list[str] = list(status["problems"]) if is_running else []
    if not is_running:
        problems.append(
            f"No supervisor is running. The last one (process {status['pid']}) has ended; it wrote its status "
            f"{age_s:.0f} s ago."
        )
    elif age_s > STALE_S:
        problems.append(f"The last status is {age_s:.0f} s old: the event loop of process {status['pid']} is blocked.")
    if as_json:
        click.echo(json.dumps({**status, "age_s": age_s, "is_running": is_running, "problems": problems}))
    else:
        for line in _lines(status, problems, is_running=is_running):
            click.echo(printable(line))
    return 1 if problems else 0


def _read(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            found: dict[str, Any] = json.loads(file.read(MOST_BYTES))
        _lines(found, list(found["problems"]), is_running=True)  # raises for what is no status
        float(found["at"])
    except FileNotFoundError:
        raise UsageError(f"There is no status in {str(path.parent)!r}: no supervisor has run there.") from None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        what = f"{type(error).__name__}: {error}"
        raise UsageError(f"{path} is damaged ({what}). A running supervisor writes it again each second.") from None
    return found


def _line_of_node(node: dict[str, Any]) -> str:
    """A node of a cluster in one line."""
    does = f"{counted(node['calls'], 'call')}, {counted(node['sessions'], 'session')}"
    line = f"node         {node['id'][:12]} {node['state']}, {does}"
    if "cells" not in node:
        return line
    cells = sum(node["cells"].values())
    return f"{line}, {cells} of {node['max_cells']} cells, {node['memory_bytes'] / 2**20:.0f} MiB"


def _lines(status: dict[str, Any], problems: list[str], *, is_running: bool) -> list[str]:
    """The status in lines. Of a supervisor that has ended, only its problem is of interest."""
    if not is_running:
        return [f"PROBLEM      {problem}" for problem in problems]
    cells = ", ".join(f"{number} {name}" for name, number in status["cells"].items() if number) or "none"
    errors = ", ".join(f"{number:,} {kind}" for kind, number in sorted(status["errors"].items())) or "none"
    lines = [
        f"supervisor   process {status['pid']}, running",
        f"cells        {cells} (at most {status['max_cells']})",
        f"calls        {status['running_count']} running, {status['waiting_count']} waiting, {status['calls']:,} ended",
        f"errors       {errors}",
        f"approvals    {status['pending_approvals']} pending",
        f"sessions     {status['session_count']}",
    ]
    for each in status.get("nodes", []):
        lines.append(_line_of_node(each))
    for each in status["sessions"]:
        parent = f" of {each['parent']}" if each["parent"] else ""
        lines.append(
            f"    {each['id']}  {each['kind']}{parent}  agent {agent_in(each)}  {counted(each['calls'], 'call')}"
        )
    for name in ("running", "waiting"):
        for each in status[name]:
            lines.append(f"    {name} {each['s']:.1f} s  {each['tool']}  {each['call']}  session {each['session']}")
    lines += [f"PROBLEM      {problem}" for problem in problems] or ["problems     none"]
    return lines
