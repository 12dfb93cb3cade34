"""No state passes from call to call: all visible shared state is the same after every attack, for the same session and
for another session.
"""

import json
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests import programs
from tests.escape.kit import ROOT, ROOTLESS
from tests.escape.machines import MACHINES, command_on

from toolcell.runner.sweep import use_leaves_times

from .shared_state import ATTACKS

pytestmark = pytest.mark.usefixtures("warm", "nothing_is_left_of_the_module")

SCRIPT = Path(__file__).parent / "shared_state.py"
EXPECTED_ERRORS = {"die": "crashed"}
CELLS = ("standby", "on demand", "kept")
PATHS = [*((ROOT, cells) for cells in CELLS), (ROOTLESS, "on demand")]
if os.geteuid() != 0:
    PATHS = [(ROOTLESS, cells) for cells in CELLS]
Attacked = Callable[[str, str], dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def attacked(nothing_is_left_of_the_module: None) -> Attacked:
    """The outcomes of all attacks on a machine, by name. The attacks are made once."""

    @cache
    def attack_all(name: str, cells: str) -> dict[str, dict[str, Any]]:
        machine = next(each for each in MACHINES if each.name == name)
        command = command_on(machine, [sys.executable, "-I", str(SCRIPT), cells], [str(SCRIPT.parent)])
        done = programs.run(command, cwd="/")
        assert done.returncode == 0, done.stderr
        return {record["attack"]: record for record in map(json.loads, done.stdout.splitlines())}

    return attack_all


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """The differences between two pictures. Times are not compared for files with other inodes, nor for pipes whose
    times change with each use.
    """
    if path.endswith(".times") and (before[:1] != after[:1] or not (use_leaves_times() or path == ".scratch.times")):
        return []
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        return [line for key in before for line in differences(before[key], after[key], f"{path}.{key}")]
    return [] if before == after else [f"{path}: {before} became {after}"]


@pytest.mark.parametrize(("machine", "cells"), PATHS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_the_next_call_finds_all_that_is_shared_as_the_call_before_the_attack_did(
    machine: str, cells: str, attack: str, attacked: Attacked
) -> None:
    record = attacked(machine, cells)[attack]
    assert record["error"] == EXPECTED_ERRORS.get(attack, ""), record["error"]
    own, others = record["before"]
    assert own.keys() == others.keys() and "descriptor 0" in own, "these are pictures"
    during = differences(others, record["during"])
    if cells == "kept":  # its process lives, and has locked a file that all may read
        during = [line for line in during if not line.startswith(".descriptor 0.locked")]
    assert during == []
    for number, after in enumerate(record["after"]):
        assert differences(others if number % 2 else own, after) == []
