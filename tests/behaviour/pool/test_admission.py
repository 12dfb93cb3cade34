"""Calls that are not run now: above a concurrency limit, after crashes, beyond a usage limit, or too late."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.helpers import until

from toolcell import (
    Concurrency,
    Overloaded,
    PermissionDenied,
    Session,
    SessionKind,
    Timeout,
    ToolResult,
    UsageLimits,
    host_tool,
    load_config,
    tool,
)
from toolcell.supervisor import runtime_of

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


@tool
def rest(seconds: float = 0.2) -> float:
    """Rest. Returns when it began and when it ended."""
    began = time.monotonic()
    time.sleep(seconds)
    return began


@tool
def other() -> str:
    """Do something else."""
    return "done"


running = 0


@host_tool(harmless=True)
async def here() -> int:
    """Count the calls of this tool that run."""
    global running
    running += 1
    await anyio.sleep(0.1)
    seen, running = running, running - 1
    return seen


async def all_at_once(session: Any, name: str, count: int, args: Any = None) -> list[ToolResult]:
    results: list[ToolResult] = []

    async def call() -> None:
        results.append(await session.call(name, args))

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(call)
    return results


async def test_a_tool_runs_so_many_times_at_once_and_others_overtake_it(supervise: Any, workspace: Path) -> None:
    limits = Concurrency(tools={"rest": 1, "here": 2})
    async with supervise([rest, other, here], concurrency=limits) as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(all_at_once, session, "rest", 3, {"seconds": 3600.0})
            await until(lambda: "busy" in repr(supervisor))
            assert (await session.call("other")).output == "done"
            tasks.cancel_scope.cancel()
        began = sorted(result.output for result in await all_at_once(session, "rest", 3))
        assert all(later - earlier >= 0.2 for earlier, later in pairwise(began))
        assert {result.output for result in await all_at_once(session, "here", 6)} <= {1, 2}


async def test_a_kind_of_session_has_a_limit_and_a_call_waits_no_longer_than_its_time(
    supervise: Any, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text("[supervisor.concurrency.kinds]\nworker = 1\n")
    config = load_config(file=tmp_path / "own.toml")
    assert config.concurrency == Concurrency(kinds={SessionKind.WORKER: 1})
    async with supervise([rest, other], config=config) as supervisor:
        worker = await supervisor.open_session("worker", workspace=workspace)
        main = await supervisor.open_session("main", workspace=workspace)
        await worker.call("other")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.call, "rest", {"seconds": 3600.0})
            await until(lambda: "busy" in repr(supervisor))
            assert (await main.call("other")).output == "done"
            error = (await worker.call("other", timeout=0.2)).error
            assert isinstance(error, Overloaded) and error.retry_after_s and not error.delivered
            tasks.cancel_scope.cancel()
        assert (await worker.call("other")).output == "done"
        results: list[ToolResult] = []

        async def late() -> None:
            results.append(await worker.call("other"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.call, "rest", {"seconds": 3600.0})
            await until(lambda: "busy" in repr(supervisor))
            tasks.start_soon(late)
            await anyio.sleep(0.1)
            await worker.close()
        assert results[0].error is not None and results[0].error.kind == "cancelled"


async def test_a_call_that_waits_for_its_kind_keeps_a_tool_from_no_other_session(
    supervise: Any, workspace: Path
) -> None:
    limits = Concurrency(tools={"other": 1}, kinds={SessionKind.WORKER: 1})
    async with supervise([rest, other], concurrency=limits) as supervisor:
        worker = await supervisor.open_session("worker", workspace=workspace)
        main = await supervisor.open_session("main", workspace=workspace)
        await main.call("other")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.call, "rest", {"seconds": 3600.0})
            await until(lambda: "busy" in repr(supervisor))
            tasks.start_soon(worker.call, "other")  # waits for the place of its kind
            await anyio.sleep(0.2)
            assert (await main.call("other")).output == "done"
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def one_call_left(supervise: Any, workspace: Path) -> AsyncGenerator[Session]:
    """A session that may make one call. While this is entered, its calls wait for the one place of its kind."""
    limits = Concurrency(kinds={SessionKind.WORKER: 1})
    async with supervise([rest, other], concurrency=limits) as supervisor:
        busy = await supervisor.open_session("worker", workspace=workspace)
        await busy.call("other")
        session = await supervisor.open_session("worker", workspace=workspace, usage_limits=UsageLimits(calls=1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(busy.call, "rest", {"seconds": 1.0})
            await anyio.sleep(0.2)
            yield session
            assert session.usage is not None and session.usage.calls == 0
        assert (await session.call("other")).output == "done"
        assert isinstance((await session.call("other")).error, PermissionDenied)


async def test_a_call_that_was_never_started_is_not_counted(supervise: Any, workspace: Path) -> None:
    async with one_call_left(supervise, workspace) as session:
        assert isinstance((await session.call("other", timeout=0.1)).error, Overloaded)


async def test_a_call_whose_caller_has_gone_while_it_waited_is_not_counted(supervise: Any, workspace: Path) -> None:
    async with one_call_left(supervise, workspace) as session:
        with anyio.move_on_after(0.1) as waited:
            await session.call("other")
        assert waited.cancelled_caught


async def test_a_call_that_found_no_process_is_not_counted(supervise: Any, workspace: Path) -> None:
    async with supervise([rest, other], max_cells=1) as supervisor:
        busy = await supervisor.open_session("worker", workspace=workspace)
        await busy.call("other")
        session = await supervisor.open_session("worker", workspace=workspace, usage_limits=UsageLimits(calls=1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(busy.call, "rest", {"seconds": 1.0})
            await anyio.sleep(0.2)
            assert isinstance((await session.call("other", timeout=0.1)).error, Overloaded)
            assert session.usage is not None and session.usage.calls == 0
        assert (await session.call("other")).output == "done"


async def test_a_session_and_its_children_share_their_usage_limits(supervise: Any, workspace: Path) -> None:
    async with supervise([rest, other]) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace, usage_limits=UsageLimits(calls=3))
        child = await main.open_child("worker")
        assert (await child.call("other")).output == (await main.call("other")).output == "done"
        assert not (await child.call("other")).is_error
        for session in (main, child):
            error = (await session.call("other")).error
            assert isinstance(error, PermissionDenied) and error.reason == "usage limit: calls = 3"
            assert session.usage is not None and session.usage.calls == 3
        free = await supervisor.open_session("main", workspace=workspace)
        assert free.usage.calls == 0 and (await free.call("other")).output == "done" and free.usage.calls == 1
        short = await supervisor.open_session("worker", workspace=workspace, usage_limits=UsageLimits(wall_s=0.5))
        assert isinstance((await short.call("rest", {"seconds": 9.0})).error, Timeout)
        denied = None
        while not isinstance(denied, PermissionDenied):  # the wait for a process does not count, so some time is left
            denied = (await short.call("rest", {"seconds": 9.0})).error
        assert "wall_s = 0.5" in denied.message
        assert short.usage is not None and short.usage.wall_s > 0.4 and short.usage.bytes > 0


async def test_a_call_that_cannot_meet_its_deadline_is_refused_at_once(supervise: Any, workspace: Path) -> None:
    async with supervise([rest, other], max_cells=1) as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        async with anyio.create_task_group() as tasks:
            for _ in range(300):
                tasks.start_soon(session.call, "rest", {"seconds": 0.2})
            waiting, error = runtime_of(supervisor).pool.waiting, None
            await until(lambda: len(waiting) > 250)
            while error is None or "not queued" not in error.message:  # until the pool knows its pace
                assert len(waiting) > 200
                error = (await session.call("other", timeout=1.0)).error
            assert isinstance(error, Overloaded)
            assert error.retry_after_s is not None and error.retry_after_s > 0.3
            tasks.cancel_scope.cancel()
