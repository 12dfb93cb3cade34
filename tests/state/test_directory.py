"""The state directory: private, with one writer, with a version, and out of the sight of cells."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from toolcell import Approvals, UsageError
from toolcell.cli.audit import directory_of
from toolcell.store.directory import StateDirectory
from toolcell.store.migrations import VERSION


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "state")


def test_it_is_made_for_its_user_alone(state: StateDirectory) -> None:
    state.open_to_write()
    assert os.stat(state.path).st_mode & 0o777 == 0o700
    assert state.version() == VERSION
    state.close()


def test_there_is_one_writer_at_a_time(state: StateDirectory) -> None:
    state.open_to_write()
    with pytest.raises(UsageError, match=rf"process {os.getpid()}\) writes to"):
        StateDirectory(state.path).open_to_write()
    state.close()
    again = StateDirectory(state.path)
    again.open_to_write()
    again.close()


def test_a_fork_that_outlives_the_supervisor_keeps_nobody_out(state: StateDirectory) -> None:
    program = (
        "import os, sys, time\n"
        "from toolcell.store.directory import StateDirectory\n"
        "state = StateDirectory(sys.argv[1])\n"
        "state.open_to_write()\n"
        "child = os.fork()\n"
        "if child:\n"
        "    os._exit(0)\n"
        "print(os.getpid(), flush=True)\n"
        "time.sleep(30)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(state.path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.wait()
        try:
            state.open_to_write()
            state.close()
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_directory_that_others_can_enter_is_refused(state: StateDirectory) -> None:
    state.path.mkdir(mode=0o755)
    with pytest.raises(UsageError, match="chmod 700"):
        state.open_to_write()


def test_a_link_is_refused(state: StateDirectory, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir(mode=0o700)
    state.path.symlink_to(tmp_path / "other")
    with pytest.raises(UsageError, match="is not a directory"):
        state.open_to_write()


def test_a_later_version_is_refused_and_a_wrong_one_is_told(state: StateDirectory) -> None:
    state.path.mkdir(mode=0o700)
    (state.path / "version").write_text("99\n")
    with pytest.raises(UsageError, match=f"has version 99, and this toolcell knows {VERSION}"):
        state.open_to_write()
    (state.path / "version").write_text("one\n")
    with pytest.raises(UsageError, match="has no version number"):
        state.open_to_write()
    os.truncate(state.path / "version", 50 * 2**30)
    with pytest.raises(UsageError, match="has no version number"):
        state.open_to_write()
    (state.path / "version").unlink()
    state.open_to_write()  # the lock was released
    state.close()


def test_the_key_is_made_once_and_is_private(state: StateDirectory) -> None:
    state.open_to_write()
    key = state.key()
    assert len(key) == 32 and state.key() == key
    assert os.stat(state.path / "key").st_mode & 0o777 == 0o600
    (state.path / "key").chmod(0o644)
    with pytest.raises(UsageError, match="is not a key that only its user can read"):
        state.key()
    state.close()


@pytest.mark.parametrize("directory", ["", "state", "state/below", "link"])
def test_a_directory_that_shows_it_to_a_cell_is_refused(state: StateDirectory, tmp_path: Path, directory: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="overlap"):
        state.require_apart(str(tmp_path / directory), "the workspace")


def test_another_directory_is_apart(state: StateDirectory, tmp_path: Path) -> None:
    state.require_apart(str(tmp_path / "project"), "the workspace")
    state.require_apart("/usr", "the profile's path")


def test_a_link_on_the_way_that_a_cell_could_replace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "safe").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "link").symlink_to(tmp_path / "safe")
    state = StateDirectory(tmp_path / "project" / "link" / "state")
    assert state.path == tmp_path / "safe" / "state"
    with pytest.raises(UsageError, match="overlap"):
        state.require_apart(str(tmp_path / "project"), "the workspace")
    state.require_apart(str(tmp_path / "project" / "other"), "the workspace")


def test_a_place_in_the_python_installation_is_refused() -> None:
    with pytest.raises(UsageError, match="the Python installation"):
        StateDirectory(Path(sys.prefix) / "state").require_outside_of_interpreter()


def test_a_monitor_that_looks_all_the_time_keeps_no_supervisor_out(state: StateDirectory) -> None:
    state.path.mkdir(mode=0o700)
    program = (
        "import sys\n"
        "from toolcell.store.directory import StateDirectory\n"
        "state = StateDirectory(sys.argv[1])\n"
        "print(state.is_written(), flush=True)\n"
        "while True: state.is_written()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(state.path)], stdout=subprocess.PIPE) as monitor:
        try:
            assert monitor.stdout is not None and monitor.stdout.readline() == b"False\n"
            for _ in range(10):
                state.open_to_write()
                assert state.is_written()
                state.close()
        finally:
            monitor.kill()


def test_who_removes_the_file_lock_lets_no_second_writer_in(state: StateDirectory) -> None:
    state.open_to_write()
    (state.path / "lock").unlink()
    with pytest.raises(UsageError, match="Another supervisor"):
        StateDirectory(state.path).open_to_write()
    state.close()


def test_a_key_that_is_half_made_is_nobodys(state: StateDirectory) -> None:
    """Many processes may ask for the key at the same time, and each has the same one."""
    state.open_to_write()
    program = "import sys; from toolcell.store.directory import *; print(StateDirectory(sys.argv[1]).key().hex())"
    command = [sys.executable, "-c", program, str(state.path)]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    assert len({run.communicate()[0] for run in runs}) == 1 and {run.returncode for run in runs} == {0}
    assert [path.name for path in state.path.glob(".key*")] == []
    state.close()


@pytest.mark.parametrize("name", ["journal.log", "journal.sqlite", "approvals.sqlite-wal", "key", "status.json"])
@pytest.mark.parametrize("kind", ["a symbolic link", "a FIFO", "a directory"])
def test_what_stands_in_the_place_of_a_file_is_refused_and_not_touched(
    state: StateDirectory, tmp_path: Path, name: str, kind: str
) -> None:
    """A supervisor would follow the link to change a mode there, and wait for ever for the other end of the FIFO."""
    outside = tmp_path / "outside"
    outside.write_text("mine")
    outside.chmod(0o644)
    state.open_to_write()
    state.close()
    place = state.path / name
    place.unlink(missing_ok=True)
    makers = {"a symbolic link": lambda: place.symlink_to(outside), "a FIFO": lambda: os.mkfifo(place)}
    makers.get(kind, place.mkdir)()
    for use in (state.open_to_write, lambda: Approvals.open(state.path), lambda: directory_of(str(state.path))):
        with pytest.raises(UsageError, match=f"{name}' is not a file, but {kind}"):
            use()
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644 and outside.read_text() == "mine"
