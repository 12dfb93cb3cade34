"""`toolcell demo` as a user runs it, and that it would notice an outcome that is not the right one."""

import re
import sys
from pathlib import Path

import pytest
from tests import programs
from tests.escape.machines import MACHINES, command_on

from toolcell import Supervisor, base_tools
from toolcell.cli.demo import LEGEND, RIGHT, WRONG, Demo, Step, scenario
from toolcell.cli.demo_tools import TOOLS

from .conftest import ALLOWED, Run

CHECKS = 8  # of what is left
ROW = re.compile(r"✓ (\w+) +(\w+)\(.*?\) +\d+\.\d{3} s  .")
STEPS = [step for steps in scenario(Path("/project"), 1, "mark").values() for step in steps]


def test_every_outcome_is_the_right_one(cli: Run, anyone: list[str], allowed: list[str]) -> None:
    done = cli("demo", *allowed, before=anyone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert WRONG not in done.stdout
    assert done.stderr == ""
    rows = [match.groups() for match in map(ROW.match, done.stdout.splitlines()) if match]
    assert rows == [(step.who, step.tool) for step in STEPS]
    assert done.stdout.count(RIGHT) == len(STEPS) + CHECKS + 1
    assert done.stdout.startswith(f"{LEGEND}\n")
    assert re.search(r"calls in \d+\.\d s, each with the right outcome", done.stdout)


def test_it_is_right_too_where_there_are_no_namespaces(warm: None) -> None:
    machine = next(each for each in MACHINES if each.name == "no namespaces")
    kinds = ("user", "mount", "pid", "net", "ipc", "uts", "cgroup")
    allowed = [word for kind in kinds for word in ("--allow-missing", f"{kind}_namespace")]
    command = command_on(machine, [sys.executable, "-I", "-m", "toolcell.cli", "demo", *allowed])
    done = programs.run(command, timeout=400, cwd="/")
    assert done.returncode == 0 and WRONG not in done.stdout, done.stdout + done.stderr


def test_the_scenario_uses_all_base_tools_all_three_sessions_and_every_tool_of_the_demo() -> None:
    assert {tool.name for tool in (*base_tools(), *TOOLS)} <= {step.tool for step in STEPS}
    assert {step.who for step in STEPS} == {"main", "branch", "worker"}


def test_a_wrong_outcome_is_shown_counted_and_ends_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Demo(tmp_path, 1, ALLOWED)

    async def play() -> None:
        async with Supervisor([*base_tools(), *TOOLS], allow_missing=ALLOWED) as supervisor:
            session = await supervisor.open_session("main", workspace=demo.project)
            for tool, arguments, expected in (
                ("count_words", {"path": "README.md"}, "^Crashed"),
                ("fails", {"how": "exit"}, "^done$"),
                ("tries", {"what": "read", "target": "/etc/shadow"}, "^(ENOENT|EACCES)$"),
            ):
                demo.judge(Step("main", tool, arguments, expected), await session.call(tool, arguments), 1.0)

    monkeypatch.setattr(demo, "_play", play)
    assert demo.run() == 1
    said = capsys.readouterr().out
    assert said.count("expected: ") == 2
    assert "expected: ^Crashed" in said and "expected: ^done$" in said
    assert re.search(r"3 calls in \d+\.\d s, \d wrong", said)
