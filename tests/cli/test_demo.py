"""`toolcell demo` as a user runs it, and that it would notice an outcome that is not the right one."""

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from rich.console import Console
from tests import programs
from tests.escape.machines import MACHINES, command_on

from toolcell import LimitedResource, LimitExceeded, Supervisor, ToolResult, base_tools
from toolcell.cli.demo.expect import crashed, gives, happened, works
from toolcell.cli.demo.leftovers import Before
from toolcell.cli.demo.play import Play, call_text
from toolcell.cli.demo.scenario import scenario, step
from toolcell.cli.demo.stage import DemoStage, stage
from toolcell.cli.demo.tools import TOOLS
from toolcell.cli.demo.view import LEGEND, RIGHT, WRONG, PlainView

from .conftest import ALLOWED, Run

CHECKS = 5  # of what is left
ROW = re.compile(r"✓ (\w+) +(\w+)\(.*?\) +\d+\.\d{3} s  (.*)")


FACTS = (
    "ExecutionError: ValueError: the price is not a number",
    "Crashed: signal 11, SIGSEGV",
    "Crashed: exit code 7",
    "Timeout: after ",
    "LimitExceeded: memory, over 64 MiB",
    "LimitExceeded: processes, over 8",
    "LimitExceeded: output, over 64 KiB",
    "ProtocolViolation: ",
    "PermissionDenied: no exec and no write",
    "refused: permission_denied",
    "EACCES: Permission denied",
)


def test_every_outcome_is_the_right_one_and_has_its_facts(
    cli: Run, anyone: list[str], allowed: list[str], tmp_path: Path
) -> None:
    done = cli("demo", *allowed, before=anyone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert WRONG not in done.stdout
    assert done.stderr == ""
    rows = [match.groups() for match in map(ROW.match, done.stdout.splitlines()) if match]
    with stage(tmp_path) as around:
        steps = [one for act in scenario(around) for one in act.steps]
    assert [(who, tool) for who, tool, _happened in rows] == [(one.who, one.tool) for one in steps]
    assert done.stdout.count(RIGHT) == len(steps) + CHECKS + 1
    assert done.stdout.startswith(f"{LEGEND}\n")
    assert [fact for fact in FACTS if fact not in done.stdout] == []
    assert re.search(r"calls in \d+\.\d s", done.stdout)


def test_it_is_right_too_where_there_are_no_namespaces(warm: None) -> None:
    machine = next(each for each in MACHINES if each.name == "no namespaces")
    kinds = ("user", "mount", "pid", "net", "ipc", "uts", "cgroup")
    allowed = [word for kind in kinds for word in ("--allow-missing", f"{kind}_namespace")]
    command = command_on(machine, [sys.executable, "-I", "-m", "toolcell.cli", "demo", *allowed])
    done = programs.run(command, timeout=400, cwd="/")
    assert done.returncode == 0 and WRONG not in done.stdout, done.stdout + done.stderr


def test_the_scenario_uses_all_base_tools_all_three_sessions_and_every_tool_of_the_demo(tmp_path: Path) -> None:
    with stage(tmp_path) as around:
        steps = [one for act in scenario(around) for one in act.steps]
    assert {tool.name for tool in (*base_tools(), *TOOLS)} <= {one.tool for one in steps}
    assert {one.who for one in steps} == {"main", "branch", "worker"}
    assert all(one.expected for one in steps)


def test_on_a_terminal_it_is_a_live_table_and_nothing_is_cut_off_by_its_height(allowed: list[str]) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-I", "-m", "toolcell.cli", "demo", *allowed]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "12"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.STDOUT, env=environment)
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(ours, 65_536):
            said += chunk
    except OSError:
        pass  # EIO: the other end is closed, pty(7)
    finally:
        os.close(ours)
    text = said.decode()
    assert process.wait(timeout=400) == 0, text
    assert "\x1b[" in text
    assert "each with the right outcome" in text
    assert "SIGSEGV" in text and "no process is left" in text


def test_a_wrong_outcome_is_shown_counted_and_ends_with_status_1(tmp_path: Path) -> None:
    screen = io.StringIO()
    shown = PlainView(Console(file=screen, soft_wrap=True))

    async def perform(around: DemoStage, play: Play) -> None:
        async with Supervisor([*base_tools(), *TOOLS], allow_missing=ALLOWED) as supervisor:
            await play.open_sessions(supervisor)
            await play.perform(step("main", "count_words", {"path": "README.md"}, crashed(exit_code=7)))
            await play.perform(step("main", "exits", {"code": 3}, works()))
            await play.perform(step("worker", "executes", {"program": "/bin/sh"}, gives("EACCES")))

    with stage(tmp_path) as around:
        play = Play(around, shown, Before.now(), ALLOWED)
        anyio.run(perform, around, play)
        assert play.verdict(1.0) == 1
    said = screen.getvalue()
    assert said.count(WRONG) == 2
    assert said.count(RIGHT) == 1
    assert "expected: Crashed, signal None, exit_code 7" in said
    assert "2 wrong, of 3 calls" in said
    assert "main exits(3): Crashed: exit code 3. Expected: a result." in said


@pytest.mark.parametrize(
    ("resource", "limit", "said"),
    [
        ("memory", 50 * 1024 * 1024, "50 MiB"),
        ("cpu", 0.5, "0.5 s"),
        ("processes", 8, "8"),
        ("files", 16, "16"),
        ("file_size", 1000, "1000 bytes"),
        ("scratch", 1024, "1 KiB"),
        ("output", 2048, "2 KiB"),
        ("result", 1024**3, "1 GiB"),
    ],
)
def test_a_limit_is_told_with_its_unit(resource: LimitedResource, limit: float, said: str) -> None:
    error = LimitExceeded(message="", resource=resource, limit=limit)
    assert happened(ToolResult.build(error=error)) == f"LimitExceeded: {resource}, over {said}"


def test_a_call_is_shown_short_whatever_its_arguments() -> None:
    assert call_text("loops", {}) == "loops()"
    assert call_text("read", {"path": "README.md"}) == "read(README.md)"
    assert len(call_text("edit", {"path": "a" * 99, "old_text": "b\n" * 99, "new_text": "c" * 99})) < 50
    assert call_text("overwrites", {"path": "/tmp/a/very/long/path/to/README.md"}).endswith("/path/to/README.md)")
