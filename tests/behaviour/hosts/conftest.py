"""Run a program on another kind of host, as root or as an ordinary user."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests import ordinary, programs
from tests.ordinary import AS_USER

import toolcell_sandbox
from toolcell_sandbox.profile import python_paths

HERE = Path(__file__).parent
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
REPOSITORY = Path(toolcell_sandbox.__file__).parent.parent.parent
USER = ordinary.USER + 1  # of these tests alone: RLIMIT_NPROC counts all processes of a user
PYTHON = (sys.executable, "-I")
Found = dict[str, Any]


def command_on(
    steps: str, command: Sequence[str], *, user: bool = False, then: str = "", reach: Sequence[str] = ()
) -> list[str]:
    """The arguments that run `command` on the host that `steps` make. With `user`, an ordinary user runs it and
    performs the steps `then`. `reach` are paths that this user must be able to reach.
    """
    line = list(command)
    if then:
        line = [*PYTHON, str(HERE / "host.py"), *then.split(), "--", *line]
    if user and os.geteuid() == 0:
        paths = [*python_paths(), str(REPOSITORY), str(HERE), str(EXAMPLES), *reach]
        line = [*PYTHON, str(AS_USER), str(USER), *paths, "--", *line]
    return [*PYTHON, str(HERE / "host.py"), *steps.split(), "--", *line] if steps else line


def told(command: Sequence[str], **options: Any) -> Found:
    """The output of the program: one JSON object. With options of `subprocess.run`, a new interpreter runs it."""
    if options or tuple(command[:2]) != PYTHON or command[2].startswith("-"):
        done = subprocess.run(command, **{"capture_output": True, "text": True, "timeout": 60, "cwd": "/", **options})
    else:
        done = programs.run(command, cwd="/")
    assert done.returncode == 0 and done.stdout, (done.returncode, done.stdout, done.stderr)
    found: Found = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module", autouse=True)
def programs_are_forked(warm: None) -> None:
    """Nearly all tests of this folder run one."""


@pytest.fixture
def host(open_directory: Path, request: pytest.FixtureRequest) -> Callable[..., Found]:
    """`host(steps, user=…, then=…, allow=…)`: the findings of scene.py on that host."""

    def run(steps: str = "", *, user: bool = False, then: str = "", allow: Sequence[str] = ()) -> Found:
        workspace = open_directory / f"workspace-{len(list(open_directory.iterdir()))}"
        workspace.mkdir()
        if user and os.geteuid() == 0:
            os.chown(workspace, USER, USER)
        steps = steps.format(workspace=workspace)
        return told(command_on(steps, [*PYTHON, str(HERE / "scene.py"), str(workspace), *allow], user=user, then=then))

    return run


WORKS = {"save": "saved 5 characters", "shell": "hellohi\n"}


def assert_works(found: Found) -> None:
    """Check that the tool wrote, that the program ran, and that the number of processes is bounded."""
    assert {name: found.get(name) for name in WORKS} == WORKS, found
    assert found["read"] == "1\thello", found
    if "crowd" in found:
        assert found["crowd"] == "processes" or 0 < found["crowd"] < 24, found  # with the slack of the limits
