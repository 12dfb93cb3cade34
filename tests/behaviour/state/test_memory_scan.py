"""What is in the memory of a cell: the data of its own session, and of nothing else."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.ordinary import AS_USER, USER

from toolcell_sandbox.profile import python_paths

PROGRAM = Path(__file__).with_name("memory_scan.py")
ROOT = PROGRAM.parents[3]


@pytest.mark.parametrize("user", ["as it is", pytest.param("ordinary", marks=pytest.mark.root)])
@pytest.mark.parametrize(("plain", "standby"), [("0", 1), ("0", 0), ("1", 1)])
def test_a_cell_holds_nothing_of_the_supervisor_or_of_another_session(
    user: str, plain: str, standby: int, open_directory: Path
) -> None:
    """Each cell has canaries of one session at most, a zygote none, and its doorkeeper, which forks no cell, paths."""
    place = Path(tempfile.mkdtemp(prefix="scan-", dir=open_directory))
    place.chmod(0o755)
    command = [sys.executable, str(PROGRAM), str(place), str(standby)]
    if user == "ordinary":
        os.chown(place, USER, USER)
        paths = [*python_paths(), str(ROOT), str(place)]
        command = [sys.executable, "-I", str(AS_USER), str(USER), *paths, "--", *command]
    environment = os.environ | {"TOOLCELL_PLAIN": plain, "SUPERVISOR_TOKEN": "canary-host-0123456789abcdef"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    assert {"host", "1", "2"} <= set(found.pop("supervisor")), "a scan finds what is there"
    assert any(name.startswith("zygote") for name in found)
    for name, seen in found.items():
        kind, number, *call = name.split()
        owners = {owner.removeprefix("path") for owner in seen}
        if call:
            assert owners == (set() if kind == "plain" else {number}), name
        elif kind == "doorkeeper":
            assert all(owner.startswith("path") for owner in seen), (name, seen)
        else:
            assert not owners if kind == "zygote" else len(owners) <= 1 and "host" not in owners, (name, seen)
