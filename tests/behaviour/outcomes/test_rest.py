"""A kept process is bounded while it has no call, too."""

import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.helpers import until

from toolcell import RecentJournal, Supervisor, tool
from toolcell.supervisor import runtime_of

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
MIB = 1024 * 1024
_held: list[object] = []


def _lock() -> None:
    for number in range(40):
        fd = os.open(f"/tmp/lock{number}", os.O_RDWR | os.O_CREAT)
        for start in range(1000, 0, -2):
            fcntl.lockf(fd, fcntl.LOCK_EX, 1, start)


def _fork_with_memory() -> None:
    for _ in range(4):
        if os.fork() == 0:
            _held.append(os.urandom(1) * (20 * MIB))
            time.sleep(1000)


def _hold_little() -> None:
    _held.append(os.urandom(1) * MIB)


@tool(lifetime="session", limits={"memory_bytes": 64 * MIB})
def later(what: str) -> int:
    """Take memory or locks a moment after the call. Return the pid.

    Args:
        what: Which of them.
    """
    work = {"locks": _lock, "memory": _fork_with_memory, "little": _hold_little}[what]
    threading.Timer(0.3, work).start()
    return os.getpid()


@pytest.mark.parametrize("what", ["locks", "memory"])
async def test_one_that_takes_too_much_after_its_call_is_ended_and_the_next_call_has_another(
    what: str, supervise: Callable[..., Supervisor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with supervise([later]) as supervisor:
        if what == "memory":  # a cgroup bounds it without a look
            monkeypatch.setattr(runtime_of(supervisor).pool.slots, "tree", None)
        journal = supervisor.journal
        assert isinstance(journal, RecentJournal)
        session = await supervisor.open_session("main", workspace=tmp_path)
        (await session.call("later", {"what": what})).unwrap()
        await until(lambda: journal.of(kind="incident"))
        (record,) = journal.of(kind="incident")
        assert f"exceeded its limit on {what} after its call" in record.data["what"]
        assert (await session.call("later", {"what": "little"})).unwrap() > 0


async def test_one_that_takes_little_stays(supervise: Callable[..., Supervisor], tmp_path: Path) -> None:
    async with supervise([later]) as supervisor:
        session = await supervisor.open_session("main", workspace=tmp_path)
        first = (await session.call("later", {"what": "little"})).unwrap()
        pool = runtime_of(supervisor).pool
        seen = pool._rest_seen_at
        await until(lambda: pool._rest_seen_at > seen + 1.5)
        assert (await session.call("later", {"what": "little"})).unwrap() == first
