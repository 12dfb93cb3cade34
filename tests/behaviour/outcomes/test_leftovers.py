"""The second layer of "nothing outlives its call": the cgroup of a cell without a pid namespace."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import programs
from tests.escape.machines import Machine, command_on

CLONE_NEWPID = 0x20000000
NO_PID_NAMESPACE = Machine("no pid namespace", refuse=("unshare,clone", 1, CLONE_NEWPID), allow=("pid_namespace",))


pytestmark = pytest.mark.usefixtures("warm")


def answer_of(who: str, temporary: Path) -> dict[str, Any]:
    """The outcome of the calls, with a daemon that `who` ends."""
    script = Path(__file__).parent / "leftovers.py"
    command = command_on(NO_PID_NAMESPACE, [sys.executable, "-I", str(script), who, *NO_PID_NAMESPACE.allow])
    env = {**os.environ, "TMPDIR": str(temporary)}  # the machine's own is others' too
    done = programs.run(command, env=env)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["during"] == 1, "it was there while its call ran, or this tests nothing"
    assert answer["outputs"][1] == 1 and answer["cgroup"], answer
    assert answer["after"] == 0 and answer["residue"] == []
    return answer


@pytest.mark.root
def test_a_daemon_that_no_pid_namespace_ends_is_ended_by_the_init_that_adopts_it(tmp_path: Path) -> None:
    assert answer_of("init", tmp_path)["errors"] == []


@pytest.mark.root
def test_a_daemon_that_no_init_ends_any_more_is_ended_by_its_cgroup_and_put_on_record(tmp_path: Path) -> None:
    answer = answer_of("cgroup", tmp_path)
    assert any("outlived" in incident for incident in answer["incidents"]), answer
