"""Unusual states of the process that embeds a supervisor: no standard streams, ignored signals, low limits, forks."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from .conftest import HERE, PYTHON, USER, Found, assert_works, command_on, told

EMBED = str(HERE / "embed.py")
ROOT = partial(pytest.param, marks=pytest.mark.root)  # it takes a user with no other process, whom only root can be


@pytest.fixture
def workspace(open_directory: Path) -> Path:
    """A directory that the ordinary user owns."""
    path = open_directory / f"embedded-{len(list(open_directory.iterdir()))}"
    path.mkdir()
    if os.geteuid() == 0:
        os.chown(path, USER, USER)
    return path


def embedded(state: str, workspace: Path, **options: Any) -> Found:
    return told([*PYTHON, EMBED, state, str(workspace)], **options)


@pytest.mark.parametrize(
    "state",
    ["strange_signals", "twice", "reaped_by_others"],
)
def test_works_in_such_an_embedder(state: str, workspace: Path) -> None:
    assert_works(embedded(state, workspace))


def test_closed_standard_streams_stay_closed_and_no_channel_takes_their_place(workspace: Path) -> None:
    found = embedded("closed_streams", workspace)
    assert_works(found)
    assert found["streams"] == ["closed"] * 3


@pytest.mark.parametrize(
    ("umask", "mode"), [(0o777, 0o600), (0o077, 0o600), (0o027, 0o640), (0o002, 0o664), (0, 0o664)]
)
def test_files_of_a_call_have_the_mode_of_the_embedders_umask_but_others_never_write(
    workspace: Path, umask: int, mode: int
) -> None:
    found = embedded(f"umask_{umask:o}", workspace)
    assert_works(found)
    assert found["mode"] == mode


def test_the_embedder_s_other_children_are_its_own(workspace: Path) -> None:
    found = embedded("other_children", workspace)
    assert_works(found)
    assert found["statuses"] == [7, 8] and found["left"] is None


def test_a_fork_of_the_embedder_keeps_no_cell_alive(workspace: Path) -> None:
    found = embedded("forked", workspace)
    assert_works(found)
    assert len(found["processes"]) > 2 and found["left"] == []


HOSTILE = {
    "PYTHONPATH": "/nonexistent",
    "PYTHONSTARTUP": "/nonexistent",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONWARNINGS": "error",
    "PYTHONUTF8": "0",
    "PYTHONHASHSEED": "0",
    "PYTHONINSPECT": "1",
    "PYTHONUNBUFFERED": "1",
    "LD_PRELOAD": "/nonexistent.so",
    "LC_ALL": "C",
    "TMPDIR": "/nonexistent",
    "HOME": "/nonexistent",
    "PATH": "",
}


def test_hostile_variables_of_the_embedder_reach_no_cell(workspace: Path) -> None:
    assert_works(embedded("plain", workspace, env=HOSTILE))
    assert_works(embedded("plain", workspace, env={}))


@pytest.mark.parametrize("flags", [("-O",), ("-OO", "-bb", "-X", "dev"), ("-I", "-S", "-B")], ids=" ".join)
def test_works_with_these_flags_of_python(flags: tuple[str, ...], workspace: Path) -> None:
    # -S leaves out site-packages: what is needed of it is put on the path by hand.
    start = f"import sys, runpy; sys.path[:0] = {sys.path!r}; sys.argv = [{EMBED!r}, 'plain', {str(workspace)!r}]"
    assert_works(told([sys.executable, *flags, "-c", f"{start}; runpy.run_path({EMBED!r}, run_name='__main__')"]))


@pytest.mark.parametrize("limits", ["NOFILE:64 AS:400000000 FSIZE:1000000 CPU:60", ROOT("NPROC:40")])
def test_works_under_low_limits(limits: str, workspace: Path) -> None:
    then = " ".join(f"limit={each}" for each in limits.split())
    assert_works(told(command_on("", [*PYTHON, EMBED, "plain", str(workspace)], user=True, then=then)))


@pytest.mark.parametrize(
    ("limit", "cure"),
    [
        ("NOFILE:11", "Raise the limit on open files (ulimit -n)"),
        ("NOFILE:28", "Raise the limit on open files (ulimit -n)"),
        ROOT("NPROC:1", "Raise the limit on processes (ulimit -u"),
        ROOT("NPROC:2", "Raise the limit on processes (ulimit -u"),
        ROOT("NPROC:4", "Raise the limit on processes (ulimit -u"),
    ],
)
def test_below_what_it_takes_the_limit_is_named(limit: str, cure: str, workspace: Path) -> None:
    command = [*PYTHON, EMBED, "started", str(workspace)]
    found = told(command_on("", command, user=True, then=f"limit={limit}"))
    assert cure in str(found), found
