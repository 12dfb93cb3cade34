"""What somebody puts into a state directory: it is named at the start, and holds no end of a supervisor."""

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner

from toolcell import PermissionTier, Supervisor, UsageError, tool
from toolcell.cli.app import toolcell
from toolcell.store.directory import StateDirectory

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.usefixtures("warm")]
Supervise = Callable[..., Supervisor]
SOON_S = 60.0


@tool
def echo(value: int) -> int:
    """Return the value."""
    return value


@tool(tier=PermissionTier.ELEVATED)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


PUT: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a directory": lambda path: path.mkdir(),
    "a link": lambda path: path.symlink_to("/dev/zero"),
    "a huge file": lambda path: huge(path),
    "a file that nobody may read": lambda path: path.touch(mode=0),
}
NAMES = [".status.json.new", "status.json", "approvals.ended", ".approvals.ended.new", "state.sqlite-journal", "lock"]


@pytest.mark.parametrize("what", PUT)
async def test_nothing_that_is_put_into_the_directory_holds_the_end(
    supervise: Supervise, workspace: Path, state: Path, what: str
) -> None:
    with anyio.fail_after(SOON_S):
        async with supervise([echo, pay], state=state, approval_timeout_s=600) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace, session_id="s")
            session.start("pay", {"amount": 1})
            while not supervisor.approvals.pending():
                await anyio.sleep(0.05)
            await session.close()  # which withdraws the request
            for name in NAMES:
                path = state / name
                if path.exists() and not path.is_dir():
                    path.unlink()
                PUT[what](path)
            session = await supervisor.open_session("main", workspace=workspace)
            session.start("pay", {"amount": 2})
            await anyio.sleep(1.5)  # the status is written meanwhile
            assert (await session.call("echo", {"value": 1})).output == 1


@pytest.mark.parametrize(
    "name",
    [
        *(
            "state.sqlite",
            "state.sqlite-wal",
            "state.sqlite-journal",
            "journal.sqlite-journal",
            "memory.sqlite-journal",
        ),
        *("approvals.ended", "key", "version", "lock"),
    ],
)
async def test_a_start_names_what_is_no_file_and_does_not_wait_for_it(
    supervise: Supervise, state: Path, name: str
) -> None:
    async with supervise([echo], state=state):
        pass
    (state / name).unlink(missing_ok=True)
    os.mkfifo(state / name)
    with anyio.fail_after(SOON_S), pytest.raises(UsageError, match=rf"{name}' is not a file, but a FIFO"):
        async with supervise([echo], state=state):
            pytest.fail("it started")


@pytest.mark.root  # only root can give a file away
async def test_a_start_names_a_file_of_another_user(supervise: Supervise, state: Path) -> None:
    async with supervise([echo], state=state):
        pass
    os.chown(state / "state.sqlite", 12345, -1)
    with pytest.raises(UsageError, match=r"state.sqlite' belongs to another user \(uid 12345\). Give it to the user"):
        async with supervise([echo], state=state):
            pytest.fail("it started")


async def test_a_locked_database_does_not_hold_the_end(supervise: Supervise, workspace: Path, state: Path) -> None:
    async with supervise([echo, pay], state=state, approval_timeout_s=600) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        session.start("pay", {"amount": 1})
        while not supervisor.approvals.pending():
            await anyio.sleep(0.05)
        other = sqlite3.connect(state / "state.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
    assert time.monotonic() - began < SOON_S
    other.close()
    async with supervise([echo], state=state):
        pass


async def test_a_locked_list_of_revocations_does_not_hold_the_end(
    supervise: Supervise, workspace: Path, state: Path
) -> None:
    async with supervise([echo, pay], state=state, approval_timeout_s=600) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        session.start("pay", {"amount": 1})
        while not supervisor.approvals.pending():
            await anyio.sleep(0.05)
        fd = os.open(state / "approvals.ended", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        began = time.monotonic()
    assert time.monotonic() - began < SOON_S
    os.close(fd)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Lets each fdatasync(2) and fsync(2) hang from now on, as on a file system that hangs, until the test ends."""
    free = threading.Event()

    def hang(_fd: int) -> None:
        free.wait(600)

    def begin() -> None:
        for name in ("fdatasync", "fsync"):
            monkeypatch.setattr(os, name, hang)

    yield begin
    free.set()


async def test_a_file_system_that_hangs_does_not_hold_the_end(
    supervise: Supervise,
    workspace: Path,
    state: Path,
    hanging: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("toolcell.store.state.CLOSE_S", 1.0)
    monkeypatch.setattr("toolcell.dispatch.ask_approval.WITHDRAW_S", 1.0)
    async with supervise([echo, pay], state=state, approval_timeout_s=600) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        session.start("pay", {"amount": 1})
        while not supervisor.approvals.pending():
            await anyio.sleep(0.05)
        hanging()
        assert (await session.call("echo", {"value": 1})).output == 1
        began = time.monotonic()
    assert time.monotonic() - began < SOON_S and "its file system hangs" in caplog.text


async def test_a_journal_that_was_removed_is_damage_for_audit(supervise: Supervise, state: Path) -> None:
    async with supervise([echo], state=state):
        pass
    StateDirectory(state).log.unlink()
    for words in (["verify"], ["list"]):
        done = CliRunner().invoke(toolcell, ["audit", *words, "--state", str(state)])
        assert done.exit_code == 1 and "journal.log was removed" in done.output
    for path in state.glob("journal.*"):
        path.unlink()
    done = CliRunner().invoke(toolcell, ["audit", "verify", "--state", str(state)])
    assert done.exit_code == 2 and "There is no journal" in done.output
