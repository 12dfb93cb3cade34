"""Kept processes that fill the pool: they make room for calls that wait, and results report the loss of their state."""

import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.helpers import until
from tests.misbehaving import echo

from toolcell import Crashed, Overloaded, Session, Supervisor, Timeout, ToolResult, tool
from toolcell.supervisor import runtime_of

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
counted: list[int] = []


@tool(lifetime="session")
def count() -> int:
    """Count the calls of this process."""
    counted.append(1)
    return len(counted)


@tool(lifetime="session")
def stay(seconds: float) -> int:
    """Sleep.

    Args:
        seconds: How long.
    """
    time.sleep(seconds)
    return os.getpid()


@tool(lifetime="session")
def die() -> None:
    """Crash."""
    os.kill(os.getpid(), signal.SIGSEGV)


def told(result: ToolResult) -> list[str]:
    return [notice.kind for notice in result.notices]


async def counting(supervisor: Supervisor, workspace: Path, sessions: int) -> list[Session]:
    """Sessions, opened one after the other, each with a kept process that has counted one call."""
    opened = [await supervisor.open_session("main", workspace=workspace) for _ in range(sessions)]
    for session in opened:
        assert (await session.call("count")).unwrap() == 1
    return opened


async def test_idle_kept_processes_leave_room_for_the_calls_of_others(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([count, echo], max_cells=4) as supervisor:
        kept = await counting(supervisor, workspace, 6)
        for number in range(6):
            other = await supervisor.open_session("main", workspace=workspace)
            assert (await other.call("echo", {"value": number}, timeout=8.0)).unwrap() == number
        results = [await session.call("count") for session in kept]
        assert [result.unwrap() for result in results[:3]] == [1, 1, 1]
        assert [told(result) for result in results[:3]] == 3 * [["state_lost"]]


async def test_the_first_call_after_the_loss_of_state_says_so_and_why_and_the_next_one_does_not(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([count, echo], max_cells=1) as supervisor:
        (session,) = await counting(supervisor, workspace, 1)
        other = await supervisor.open_session("main", workspace=workspace)
        assert (await other.call("echo", {"value": 1}, timeout=8.0)).unwrap() == 1
        result = await session.call("count")
        assert result.unwrap() == 1 and told(result) == ["state_lost"]
        said = result.for_model().splitlines()
        assert said[0] == "1" and "to make room for other calls, because it had been idle longest. Variables" in said[1]
        again = await session.call("count")
        assert again.unwrap() == 2 and again.notices == ()


async def test_the_kept_process_that_has_been_idle_longest_is_ended_and_no_other(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([count, echo], max_cells=3) as supervisor:
        oldest, newest = await counting(supervisor, workspace, 2)
        assert (await oldest.call("count")).unwrap() == 2  # now it is the newest
        first, second = [await supervisor.open_session("main", workspace=workspace) for _ in range(2)]
        async with anyio.create_task_group() as tasks:
            for session in (first, second):
                tasks.start_soon(session.call, "echo", {"value": 1})
        assert (await oldest.call("count")).unwrap() == 3
        assert told(await newest.call("count")) == ["state_lost"]


async def test_a_crash_a_deadline_and_the_death_of_a_zygote_lose_state_too(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([count, die, stay]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert isinstance((await session.call("die")).error, Crashed)
        again = await session.call("die")
        assert isinstance(again.error, Crashed) and told(again) == ["state_lost"]
        assert isinstance((await session.call("stay", {"seconds": 9.0}, timeout=0.3)).error, Timeout)
        late = await session.call("stay", {"seconds": 0.0})
        assert late.error is None and told(late) == ["state_lost"]
        assert told(await session.call("count")) == []
        for zygote in runtime_of(supervisor).pool.fleet.zygotes:
            zygote.kill()
        while any(not cell.doomed for cell in runtime_of(supervisor).pool.cells.values()):
            await anyio.sleep(0.01)
        after = await session.call("count", timeout=9.0)
        assert after.unwrap() == 1 and told(after) == ["state_lost"]


async def test_busy_kept_processes_leave_a_quarter_of_the_cells_to_other_calls(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([stay, echo], max_cells=4) as supervisor:
        sessions = [await supervisor.open_session("worker", workspace=workspace) for _ in range(5)]
        results: list[ToolResult] = []

        async def call(session: Session, timeout: float) -> None:
            results.append(await session.call("stay", {"seconds": 6.0}, timeout=timeout))

        async with anyio.create_task_group() as tasks:
            for session in sessions[:3]:
                tasks.start_soon(call, session, 5.0)
            await anyio.sleep(1.0)
            tasks.start_soon(call, sessions[3], 1.0)
            await anyio.sleep(0.1)
            assert (await sessions[4].call("echo", {"value": 1}, timeout=3.0)).unwrap() == 1
        refused = [result.error for result in results if isinstance(result.error, Overloaded)]
        assert len(refused) == 1
        assert (
            "all 3 processes that may be kept over calls (three quarters of max_cells) are busy" in refused[0].message
        )


async def test_a_refusal_for_want_of_room_says_why_and_when_to_try_again(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([stay, echo], max_cells=1) as supervisor:
        busy, other = [await supervisor.open_session("worker", workspace=workspace) for _ in range(2)]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(busy.call, "stay", {"seconds": 3600.0})
            await until(lambda: "busy" in repr(supervisor))
            refused = (await other.call("echo", {"value": 1}, timeout=0.3)).error
            assert isinstance(refused, Overloaded) and refused.retryable
            assert (
                "all 1 cells that max_cells allows are busy, 1 of them with calls of kept processes" in refused.message
            )
            assert refused.retry_after_s is not None and refused.retry_after_s > 0
            assert f"Try again in {refused.retry_after_s:.2g} s" in refused.message
            own = (await busy.call("stay", {"seconds": 0.0}, timeout=0.2)).error
            assert isinstance(own, Overloaded) and "is busy" in own.message and own.retry_after_s is not None
            tasks.cancel_scope.cancel()


async def test_a_queue_that_is_full_says_when_to_try_again(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([stay], max_cells=1) as supervisor:
        runtime_of(supervisor).pool._max_waiting = 1
        sessions = [await supervisor.open_session("worker", workspace=workspace) for _ in range(3)]
        async with anyio.create_task_group() as tasks:
            for session in sessions[:2]:
                tasks.start_soon(session.call, "stay", {"seconds": 3600.0})
                await until(lambda: "busy" in repr(supervisor))
            await until(lambda: "1 queued" in repr(supervisor))
            refused = (await sessions[2].call("stay", {"seconds": 1.0}, timeout=9.0)).error
            tasks.cancel_scope.cancel()
        assert isinstance(refused, Overloaded) and refused.retry_after_s is not None
        assert "1 call waits already, 0 of them of this session, and it has no place left" in refused.message


class Polite:
    """A kept tool with a slow teardown."""

    __name__ = "polite"

    def __call__(self) -> int:
        """Count the calls of this process."""
        import atexit

        atexit.register(time.sleep, 0.5)
        return os.getpid()


async def test_the_room_of_a_kept_process_is_not_given_away_before_it_is_gone(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    polite = tool(Polite(), name="polite", lifetime="session")
    async with supervise([polite, echo], max_cells=2) as supervisor:
        sessions = [await supervisor.open_session("worker", workspace=workspace) for _ in range(4)]
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, len(runtime_of(supervisor).pool.cells))
                await anyio.sleep(0.002)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            for session in sessions[:2]:
                assert (await session.call("polite")).error is None
            async with anyio.create_task_group() as calls:
                for session in sessions[2:]:
                    calls.start_soon(session.call, "echo", {"value": 1})
            tasks.cancel_scope.cancel()
        assert most <= 2


async def test_with_few_descriptors_kept_processes_of_many_sessions_do_not_shut_others_out(workspace: Path) -> None:
    """There are some more sessions than `ulimit -n 256` has cells for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        async with Supervisor([count, echo]) as supervisor:
            kept = await counting(supervisor, workspace, runtime_of(supervisor).pool._room.cells + 2)
            other = await supervisor.open_session("main", workspace=workspace)
            assert (await other.call("echo", {"value": 1}, timeout=8.0)).unwrap() == 1
            assert (await kept[0].call("count", timeout=8.0)).unwrap() == 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_idle_cells_make_room_where_descriptors_run_out_below_max_cells(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    """The embedding program may have used most descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with supervise([count, echo], max_cells=30) as supervisor:
        (first,) = await counting(supervisor, workspace, 1)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 50, hard))
        try:
            kept = await counting(supervisor, workspace, 4)
            for session in kept:
                assert (await session.call("echo", {"value": 1}, timeout=8.0)).unwrap() == 1
            lost = await first.call("count", timeout=8.0)
            assert lost.unwrap() == 1 and told(lost) == ["state_lost"]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
