"""Any task may start and close a supervisor, in any order and repeatedly, whatever is cancelled or fails."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests import misbehaving
from tests.helpers import PATIENCE_S

from toolcell import Cancelled, SandboxUnavailableError, Session, Supervisor, ToolContext, ToolResult, UsageError
from toolcell.supervisor import runtime_of
from toolcell_tools.toolsets import StaticToolset

pytestmark = pytest.mark.anyio


def report(ctx: ToolContext) -> None:
    """Report the progress."""
    ctx.progress("half", 0.5)


TOOLS = [misbehaving.echo, misbehaving.sleep_for_ever, report]
Supervise = Callable[..., Supervisor]


async def in_a_task(function: Callable[[], Awaitable[object]]) -> object:
    """The result or the exception of the function, run in a task that has ended afterwards."""
    outcome: list[object] = []

    async def run() -> None:
        try:
            outcome.append(await function())
        except BaseException as error:
            outcome.append(error)
            if not isinstance(error, Exception):
                raise

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
    return outcome[0]


async def echoes(supervisor: Supervisor, workspace: Path) -> Session:
    session = await supervisor.open_session("main", workspace=workspace)
    assert (await session.call("echo", {"value": 1})).unwrap() == 1
    return session


async def test_one_task_starts_it_and_another_closes_it(supervise: Supervise, workspace: Path) -> None:
    supervisor = supervise(TOOLS)
    assert await in_a_task(supervisor.start) is None
    await in_a_task(lambda: echoes(supervisor, workspace))
    assert await in_a_task(supervisor.aclose) is None


async def test_start_and_aclose_may_be_repeated_and_overlap(supervise: Supervise, workspace: Path) -> None:
    supervisor = supervise(TOOLS)
    await supervisor.aclose()  # nothing to close
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(supervisor.start)
    await supervisor.start()
    session = await echoes(supervisor, workspace)
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(supervisor.aclose)
    await supervisor.aclose()
    with pytest.raises(UsageError, match="not running"):
        await session.call("echo")
    for again in (supervisor.start, supervisor.__aenter__):
        with pytest.raises(UsageError, match=r"It is closed\. Make another one"):
            await again()


async def test_async_with_closes_what_was_started_before_and_is_not_nested(
    supervise: Supervise, workspace: Path
) -> None:
    supervisor = supervise(TOOLS)
    await supervisor.start()
    async with supervisor:
        await echoes(supervisor, workspace)
        with pytest.raises(UsageError, match="entered already"):
            await supervisor.__aenter__()
        await echoes(supervisor, workspace)
    with pytest.raises(UsageError, match="not running"):
        await echoes(supervisor, workspace)


async def test_a_start_that_fails_says_so_to_all_who_wait_and_may_be_tried_again(
    supervise: Supervise, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = supervise(TOOLS)
    outcomes: list[object] = []

    async def start() -> None:
        outcomes.append(await in_a_task(supervisor.start))

    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nonexistent/python")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            tasks.start_soon(start)
    assert [type(outcome) for outcome in outcomes] == [SandboxUnavailableError] * 2
    assert "sys.executable must be this Python" in str(outcomes[0])
    await supervisor.aclose()
    async with supervisor:
        await echoes(supervisor, workspace)


async def test_a_toolset_that_cannot_be_attached_fails_the_start_and_nothing_is_left(supervise: Supervise) -> None:
    class Unattachable(StaticToolset):
        def attach(self, runtime: object) -> None:
            raise LookupError("not here")

    supervisor = supervise(TOOLS, toolsets=[Unattachable("one", [])])
    with pytest.raises(LookupError, match="not here"):
        await supervisor.start()
    await supervisor.aclose()


async def test_a_start_that_is_cancelled_is_taken_back_and_may_be_tried_again(
    supervise: Supervise, workspace: Path
) -> None:
    supervisor = supervise(TOOLS)
    for seconds in (0.0, 0.002):  # a start takes longer
        with anyio.move_on_after(seconds) as scope:
            await supervisor.start()
        assert scope.cancelled_caught and "not running" in repr(supervisor)
    async with anyio.create_task_group() as tasks:
        with anyio.move_on_after(0.02):
            tasks.start_soon(supervisor.start)  # waits for the same start, which so is not taken back
            await anyio.sleep(0)
            await supervisor.start()
    await echoes(supervisor, workspace)
    await supervisor.aclose()


async def test_closing_while_it_starts_ends_the_start(supervise: Supervise) -> None:
    supervisor = supervise(TOOLS)
    async with anyio.create_task_group() as tasks:
        outcomes: list[object] = []

        async def start() -> None:
            outcomes.append(await in_a_task(supervisor.start))

        tasks.start_soon(start)
        while runtime_of(supervisor).life.state == "new":
            await anyio.sleep(0)
        await supervisor.aclose()
    assert isinstance(outcomes[0], UsageError) and "closed while it started" in str(outcomes[0])


async def test_aclose_in_a_cancelled_task_ends_it_all_the_same(supervise: Supervise, workspace: Path) -> None:
    supervisor = supervise(TOOLS)
    with anyio.move_on_after(5.0) as scope:
        try:
            await supervisor.start()
            await echoes(supervisor, workspace)
            scope.cancel()
            await anyio.sleep(1.0)
        finally:
            await supervisor.aclose()
    assert "not running" in repr(supervisor)


@pytest.mark.parametrize("anyio_backend", ["asyncio"], scope="module")
async def test_a_task_that_asyncio_cancels_in_aclose_waits_for_the_end_before_it_hears_of_it(
    supervise: Supervise, workspace: Path
) -> None:
    supervisor = supervise(TOOLS)
    await supervisor.start()
    await echoes(supervisor, workspace)
    closing = asyncio.ensure_future(supervisor.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert "not running" in repr(supervisor)


async def test_a_task_of_its_own_that_fails_ends_it_and_aclose_raises_the_failure_once(
    supervise: Supervise, workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = supervise(TOOLS)
    await supervisor.start()
    session = await echoes(supervisor, workspace)
    results: list[ToolResult] = []

    async def call() -> None:
        results.append(await session.call("sleep_for_ever"))

    async def fail() -> None:
        raise LookupError("lost")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await anyio.sleep(0.1)
        runtime_of(supervisor).in_background(fail)
    assert isinstance(results[0].error, Cancelled)
    with pytest.raises(UsageError, match="One of its tasks failed") as refused:
        await session.call("echo")
    assert "lost" in repr(refused.value.__cause__)
    assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR]
    with pytest.raises(ExceptionGroup) as raised:
        await in_a_task_or_raise(supervisor.aclose)
    assert raised.group_contains(LookupError, match="lost")
    await supervisor.aclose()


async def in_a_task_or_raise(function: Callable[[], Awaitable[object]]) -> object:
    outcome = await in_a_task(function)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


async def test_a_callback_that_closes_it_does_not_wait_for_itself(supervise: Supervise, workspace: Path) -> None:
    supervisor = supervise(TOOLS)
    await supervisor.start()
    session = await supervisor.open_session("main", workspace=workspace)

    async def close(_message: str, _fraction: float | None) -> None:
        await supervisor.aclose()

    with anyio.fail_after(PATIENCE_S):
        result = await session.call("report", on_progress=close)
        await supervisor.aclose()
    assert result.error is None or isinstance(result.error, Cancelled)


TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")


async def test_callbacks_see_the_context_in_which_it_was_started(supervise: Supervise, workspace: Path) -> None:
    seen: list[str] = []

    async def on_progress(_message: str, _fraction: float | None) -> None:
        seen.append(TENANT.get())

    TENANT.set("somebody")
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("report", on_progress=on_progress)
    assert seen and set(seen) == {"somebody"}


class Service:
    """A typical service: `start` enters its resources, and `stop` leaves them."""

    def __init__(self, make: Callable[[], Supervisor]) -> None:
        self._stack, self._make = AsyncExitStack(), make

    async def start(self) -> None:
        async with AsyncExitStack() as stack:
            self.supervisor = await stack.enter_async_context(self._make())
            self._stack = stack.pop_all()

    async def stop(self) -> None:
        await self._stack.aclose()


async def test_a_stack_in_a_class_with_start_and_stop(supervise: Supervise, workspace: Path) -> None:
    one, other = Service(lambda: supervise(TOOLS)), Service(lambda: supervise(TOOLS))
    for begin in (one.start, other.start):
        await in_a_task_or_raise(begin)
    await echoes(one.supervisor, workspace)
    for end in (one.stop, one.stop, other.stop):  # in the order of their start, and not in the reverse
        await in_a_task_or_raise(end)


class Actor:
    """Each method runs in a separate task, many at a time, like the methods of an async actor."""

    def __init__(self, supervisor: Supervisor, workspace: Path) -> None:
        self._supervisor, self._workspace = supervisor, workspace
        self._session: Session | None = None

    async def setup(self) -> None:
        await self._supervisor.start()
        self._session = await self._supervisor.open_session("main", workspace=self._workspace)

    async def echo(self, value: int) -> Any:
        assert self._session is not None
        return (await self._session.call("echo", {"value": value})).unwrap()

    async def teardown(self) -> None:
        await self._supervisor.aclose()


async def test_methods_of_an_async_actor(supervise: Supervise, workspace: Path) -> None:
    actor = Actor(supervise(TOOLS), workspace)
    await in_a_task_or_raise(actor.setup)
    heard: list[object] = []

    async def echo(value: int) -> None:
        heard.append(await actor.echo(value))

    async with anyio.create_task_group() as tasks:
        for value in range(4):
            tasks.start_soon(echo, value)
    assert sorted(map(str, heard)) == list("0123")
    await in_a_task_or_raise(actor.teardown)


async def test_another_event_loop_is_told_which_one_to_use(supervise: Supervise, workspace: Path) -> None:
    async with supervise(TOOLS) as supervisor:
        session = await echoes(supervisor, workspace)
        misused: list[Callable[[], Awaitable[object]]] = [
            lambda: supervisor.open_session("main", workspace=workspace),
            supervisor.start,
            supervisor.aclose,
            lambda: session.call("echo"),
            lambda: session.open_child("worker"),
            session.tools,
            session.close,
        ]
        for backend in ("asyncio", "trio"):
            for misuse in misused:
                error = await anyio.to_thread.run_sync(
                    lambda do, on: anyio.run(in_a_task, do, backend=on), misuse, backend
                )
                assert isinstance(error, UsageError) and "runs on another event loop" in str(error), misuse
        await echoes(supervisor, workspace)
