"""The process for the next call, which is forked during a call: it is ready when that call ends, however it ends, and
nothing of that call reaches it.
"""

import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import anyio
import pytest
from tests import misbehaving
from tests.helpers import until

from toolcell import LimitExceeded, Limits, Profile, Session, Supervisor, tool
from toolcell.pool.cell import Cell
from toolcell.supervisor import runtime_of

ROUNDS = 16  # of runner/init.py
pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.trick]


@tool
def own_pid(seconds: float) -> int:
    """Return the pid in the cell, after a while.

    Args:
        seconds: How long.
    """
    time.sleep(seconds)
    return os.getpid()


@tool
def leave_family(depth: int, apart: bool) -> int:
    """Fork generations of children that never end, and answer.

    Args:
        depth: How many generations.
        apart: Whether each generation has a session of its own.
    """
    take, give = os.pipe()
    if os.fork() == 0:
        for _ in range(depth):
            if apart:
                os.setsid()
            if os.fork():
                break
        else:
            os.write(give, b"x")
        while True:
            time.sleep(60)
    os.read(take, 1)
    time.sleep(0.2)
    return os.getpid()


@tool
def leave_the_group() -> str:
    """Try to leave the own process group for the group of the init."""
    try:
        os.setpgid(0, os.getpgid(os.getppid()))
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "left it"


@tool
def crash(seconds: float) -> None:
    """Crash, after a while.

    Args:
        seconds: How long.
    """
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGSEGV)


@tool
def bomb(seconds: float) -> NoReturn:
    """Fork until nothing is left, then crash while all children live.

    Args:
        seconds: How long to go on.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            os.fork()
        except OSError:
            time.sleep(0.001)
    os.abort()


@tool
def fork_until_refused() -> int:
    """Return how many children can be forked, some time after the call's start."""
    time.sleep(0.1)
    children = 0
    while True:
        try:
            pid = os.fork()
        except OSError:
            time.sleep(0.3)
            return children
        if pid == 0:
            time.sleep(60)
        children += 1


@tool(lifetime="session")
def kept(seconds: float, crash: bool = False) -> int:
    """Return the pid in the cell, or crash, after a while.

    Args:
        seconds: How long.
        crash: Whether to crash.
    """
    time.sleep(seconds)
    if crash:
        os.kill(os.getpid(), signal.SIGSEGV)
    return os.getpid()


TOOLS = [own_pid, kept, leave_family, leave_the_group, crash, bomb, fork_until_refused, misbehaving.echo]


def children(cell: Cell) -> list[int]:
    with open(f"/proc/{cell.pid}/task/{cell.pid}/children") as file:
        return [int(pid) for pid in file.read().split()]


async def idle(supervisor: Supervisor) -> Cell:
    (cell,) = runtime_of(supervisor).pool.cells.values()
    await until(lambda: cell.free)
    return cell


async def during(
    supervisor: Supervisor, session: Session, name: str, arguments: dict[str, Any], then: Callable[[int], None]
) -> int:
    """Call a tool. Once the next call's process exists, call `then` with its pid on the host. Return this pid."""
    found: list[int] = []
    cell = await idle(supervisor)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: session.call(name, arguments, timeout=3.0))
        await until(lambda: len(children(cell)) == 2)
        found += children(cell)
        then(found[1])
    return found[1]


def nothing(_spare: int) -> None:
    """Do nothing to the process."""


@pytest.mark.parametrize("ends", ["own_pid", "crash"])
async def test_a_call_that_lasts_has_the_next_process_ready_when_it_ends(
    ends: str, supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("echo")
        for _ in range(3):
            spare = await during(supervisor, session, ends, {"seconds": 0.2}, nothing)
            cell = await idle(supervisor)
            assert children(cell) == [spare]
            assert (await session.call("echo", {"value": 1})).unwrap() == 1


async def test_an_idle_cell_has_one_process_and_so_has_one_whose_calls_are_short(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("own_pid", {"seconds": 0.2})
        await idle(supervisor)
        await anyio.sleep(0.1)
        assert len(children(await idle(supervisor))) == 1


async def test_a_kept_process_whose_calls_last_has_another_one_behind_it_that_takes_over_when_it_crashes(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for _ in range(2):
            first = (await session.call("kept", {"seconds": 0.2})).unwrap()
            cell = await idle(supervisor)
            process, spare = children(cell)
            assert (await session.call("kept", {"seconds": 0.2})).unwrap() == first
            assert children(cell) == [process, spare]
            crashed = await session.call("kept", {"seconds": 0.0, "crash": True})
            assert crashed.error is not None and crashed.error.kind == "crashed", crashed
            assert (await session.call("kept", {"seconds": 0.0})).unwrap() != first
            assert await idle(supervisor) is cell and children(cell)[0] == spare


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("depth", [1, 3, 20])
async def test_what_a_call_leaves_is_killed_and_the_next_process_spared(
    depth: int, apart: bool, supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("echo")
        cell = await idle(supervisor)
        spare = await during(supervisor, session, "leave_family", {"depth": depth, "apart": apart}, nothing)
        assert await idle(supervisor) is cell
        (left,) = children(cell)
        assert (left == spare) is (not apart or depth < ROUNDS), "too many generations take it along"
        assert cell.cgroup is None or cell.cgroup.processes() == sorted([cell.pid, left])
        assert (await session.call("echo", {"value": 1})).unwrap() == 1


async def test_a_call_cannot_leave_the_group_that_is_killed_at_once(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("leave_the_group")).unwrap() == "EPERM"


async def test_a_fork_bomb_is_swept_with_or_without_the_next_process(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for _ in range(3):
            result = await session.call("bomb", {"seconds": 0.3}, timeout=5.0)
            assert result.error is not None
            assert (await session.call("echo", {"value": 3})).unwrap() == 3


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_next_process_that_is_dead_or_stopped_is_not_what_the_next_call_waits_for(
    number: signal.Signals, supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("echo")
        for _ in range(3):
            for name in ("own_pid", "crash"):
                await during(supervisor, session, name, {"seconds": 0.4}, lambda spare: os.kill(spare, number))
                assert (await session.call("echo", {"value": 4}, timeout=2.0)).unwrap() == 4


async def test_the_next_process_takes_no_place_of_the_calls_own(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    profile = Profile.for_kind("main").replace(limits=Limits(processes=8))
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, profile=profile)
        await session.call("echo")
        forked = await session.call("fork_until_refused", timeout=5.0)
        (cell,) = runtime_of(supervisor).pool.cells.values()
        if cell.cgroup is None and forked.error is not None:  # the rlimit has let one more through, and it was counted
            assert isinstance(forked.error, LimitExceeded) and forked.error.resource == "processes", forked
        else:
            assert 8 - 1 <= forked.unwrap() <= 8 + 4
