"""Symbolic links below /tmp, the cell's scratch, to paths that a cell sees. The links survive the sweep."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers import PATIENCE_S
from tests.ordinary import AS_USER, USER

import toolcell_sandbox
from toolcell_sandbox.profile import python_paths

HERE = Path(__file__).parent
SOURCES = Path(toolcell_sandbox.__file__).parent.parent.parent


@pytest.fixture
def stage() -> Iterator[Path]:
    """A directory directly below /tmp that every user can enter. pytest's own directories have mode 0700."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        os.chmod(path, 0o755)
        yield Path(path)


@pytest.fixture
def links(stage: Path) -> Iterator[tuple[Path, Path]]:
    """Links directly below /tmp, where a call may delete and rename: to a virtual environment and, relative, to a
    table.
    """
    made = Path(f"{stage}.python"), Path(f"{stage}.data")
    made[0].symlink_to(stage / "environment")
    made[1].symlink_to(f"{stage.name}/data")
    yield made
    for link in made:
        link.unlink()


def make_environment(place: Path) -> None:
    """Make a virtual environment that finds the packages of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True, timeout=PATIENCE_S)
    packages = next(place.glob("lib/python*/site-packages"))
    (packages / "all.pth").write_text("\n".join(path for path in sys.path if os.path.isdir(path)))


@pytest.mark.parametrize("identity", ["root", "user"] if os.geteuid() == 0 else ["user"])
def test_links_below_the_scratch_are_there_in_every_call(identity: str, stage: Path, links: tuple[Path, Path]) -> None:
    make_environment(stage / "environment")
    (stage / "data").mkdir()
    (stage / "data" / "table").touch()
    (stage / "project").mkdir()
    python, data = links
    command = [str(python / "bin" / "python"), "-I", str(HERE / "linked.py"), str(stage / "project"), str(data)]
    if identity == "user" and os.geteuid() == 0:
        os.chown(stage / "project", USER, USER)
        reachable = [*python_paths(), str(SOURCES), str(HERE)]
        command = [sys.executable, "-I", str(AS_USER), str(USER), *reachable, "--", *command]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, cwd="/", stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["prefix"] == str(python)
    environment = ",".join(sorted(os.listdir(python)))
    wanted = [[f"{stage.name}/data", "table"], [str(stage / "environment"), environment], []]
    assert found["answers"] == [wanted] * 4
    assert found["cells"] == 1, "the same cell, or nothing was swept"
