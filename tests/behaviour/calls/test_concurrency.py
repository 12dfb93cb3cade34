"""Many concurrent calls: which run in parallel, which wait for each other, and what an ended call leaves."""

import ctypes
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests import misbehaving
from tests.helpers import until

from toolcell import (
    Annotations,
    Cancelled,
    Capability,
    Overloaded,
    Session,
    Supervisor,
    ToolContext,
    ToolResult,
    tool,
)

pytestmark = pytest.mark.anyio
READ, WRITE = {Capability.READ}, {Capability.WRITE}


def rest(number: int, seconds: float = 0.02) -> int:
    """Sleep, then return the number."""
    time.sleep(seconds)
    return number


def meet(ctx: ToolContext, number: int) -> int:
    """Report progress, then wait for a file "go" in the workspace."""
    ctx.progress(str(number))
    while not os.path.exists(os.path.join(ctx.workspace_root, "go")):
        time.sleep(0.01)
    return number


def log_its_span(ctx: ToolContext, number: int) -> int:
    """Write a line to the workspace's log at the beginning and at the end."""
    path = os.path.join(ctx.workspace_root, "log")
    with open(path, "a") as log:
        log.write(f"begin {number}\n")
    time.sleep(0.02)
    with open(path, "a") as log:
        log.write(f"end {number}\n")
    return number


def call_itself(ctx: ToolContext, name: str) -> None:
    """Set a process name that the host can see, report it, and sleep until the call is ended."""
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)  # PR_SET_NAME
    ctx.progress(name)
    time.sleep(1000)


def watch_for_cancellation(ctx: ToolContext) -> None:
    """Wait for the cancellation of the call, then write a note to the workspace."""
    ctx.progress("watching")
    while not ctx.cancelled:
        time.sleep(0.001)
    with open(os.path.join(ctx.workspace_root, "noticed"), "w"):
        pass


def span() -> list[float]:
    """When the call began and when it ended."""
    begin = time.monotonic()
    time.sleep(0.03)
    return [begin, time.monotonic()]


TOOLS = [
    rest,
    tool(meet, needs=READ),
    tool(meet, name="meet_and_write", needs=WRITE),
    tool(meet, name="meet_and_write_at_once", needs=WRITE, annotations=Annotations(sequential=False)),
    tool(meet, name="meet_and_maybe_write", uses={*READ, *WRITE}, mutates=lambda arguments: arguments["number"] > 8),
    tool(log_its_span, needs=WRITE),
    tool(log_its_span, name="log_its_span_too", needs={*READ, *WRITE}),
    tool(span, annotations=Annotations(sequential=True)),
    call_itself,
    tool(watch_for_cancellation, needs=WRITE),
    misbehaving.echo,
]


async def gather(*calls: Callable[[], Any]) -> list[ToolResult]:
    """The results of calls that start together, in order."""
    results: dict[int, ToolResult] = {}

    async def one(number: int, call: Callable[[], Any]) -> None:
        results[number] = await call()

    async with anyio.create_task_group() as tasks:
        for number, call in enumerate(calls):
            tasks.start_soon(one, number, call)
    return [results[number] for number in range(len(calls))]


async def test_twenty_calls_at_once_in_one_session_each_get_their_own_answer(main: Session) -> None:
    results = await gather(*(lambda n=n: main.call("rest", {"number": n}) for n in range(20)))
    assert [result.unwrap() for result in results] == list(range(20))
    assert len({result.call_id for result in results}) == 20


async def test_twenty_calls_at_once_across_five_sessions_each_get_their_own_answer(
    shared: Supervisor, tmp_path: Path
) -> None:
    sessions = [await shared.open_session("main", workspace=tmp_path) for _ in range(5)]
    calls = [(sessions[n % 5], n) for n in range(20)]
    results = await gather(*(lambda s=s, n=n: s.call("rest", {"number": n}) for s, n in calls))
    assert [result.unwrap() for result in results] == list(range(20))
    assert [result.session_id for result in results] == [session.id for session, _ in calls]
    for session in sessions:
        await session.close()


@pytest.mark.parametrize("name", ["meet", "meet_and_write_at_once", "meet_and_maybe_write"])
async def test_calls_that_do_not_mutate_run_side_by_side(main: Session, name: str) -> None:
    """The same holds for tools that mutate, if they allow it."""
    met = Meeting(main)
    results = await gather(*(lambda n=n: met.call(name, n, of=4) for n in range(4)))
    assert [result.unwrap() for result in results] == [0, 1, 2, 3]


async def test_calls_that_mutate_are_one_after_the_other_within_a_session(main: Session) -> None:
    names = ["log_its_span", "log_its_span_too"]
    await gather(*(lambda n=n: main.call(names[n % 2], {"number": n}) for n in range(8)))
    lines = (main.workspace / "log").read_text().split("\n")[:-1]
    numbers = [line.split()[1] for line in lines[::2]]
    assert lines == [f"{word} {number}" for number in numbers for word in ("begin", "end")]
    assert sorted(map(int, numbers)) == list(range(8))


async def test_a_call_that_says_that_it_mutates_nothing_waits_for_none_that_does(main: Session) -> None:
    met = Meeting(main)
    results = await gather(*(lambda n=n: met.call("meet_and_maybe_write", n, of=3) for n in (7, 8, 9)))
    assert [result.unwrap() for result in results] == [7, 8, 9]


async def test_calls_that_only_say_so_are_one_after_the_other_too(main: Session) -> None:
    spans = sorted((await gather(*(lambda: main.call("span") for _ in range(4)))), key=lambda result: result.output[0])
    for before, after in pairwise(result.output for result in spans):
        assert before[1] <= after[0]


async def test_calls_that_mutate_begin_in_the_order_in_which_they_came(main: Session) -> None:
    await main.call("log_its_span", {"number": 99})
    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(main.call, "log_its_span", {"number": number})
            await anyio.sleep(0.002)
    begun = [line.split()[1] for line in (main.workspace / "log").read_text().splitlines()[2::2]]
    assert list(map(int, begun)) == list(range(6))


async def test_calls_that_mutate_in_different_sessions_do_not_wait_for_each_other(
    shared: Supervisor, workspace: Path
) -> None:
    sessions = [await shared.open_session("main", workspace=workspace) for _ in range(2)]
    met = Meeting(*sessions)
    results = await gather(*(lambda n=n: met.call("meet_and_write", n, of=2) for n in range(2)))
    assert [result.unwrap() for result in results] == [0, 1]
    for session in sessions:
        await session.close()


class Meeting:
    """Calls that end only when all of them run at the same time."""

    def __init__(self, *sessions: Session) -> None:
        self._sessions = sessions
        self._running: set[str] = set()

    async def call(self, name: str, number: int, *, of: int) -> ToolResult:
        def on_progress(message: str, _fraction: float | None) -> None:
            self._running.add(message)
            if len(self._running) == of:
                (self._sessions[0].workspace / "go").touch()

        session = self._sessions[number % len(self._sessions)]
        return await session.call(name, {"number": number}, on_progress=on_progress, timeout=10.0)


# -- cut short ---------------------------------------------------------------------------------------------------------


def pids_of(name: str) -> list[int]:
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text().strip() == name:
                found.append(int(path.parent.name))
        except OSError:
            continue  # gone meanwhile
    return found


@asynccontextmanager
async def running(session: Session, name: str, results: list[ToolResult]) -> AsyncIterator[int]:
    """A running call of `call_itself`; yields its pid on the host."""
    under_way = anyio.Event()

    async def call() -> None:
        results.append(await session.call("call_itself", {"name": name}, on_progress=lambda *_: under_way.set()))
        under_way.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await under_way.wait()
        (pid,) = pids_of(name)
        yield pid


async def test_a_call_whose_task_is_cancelled_gives_no_result_and_leaves_no_process(main: Session) -> None:
    results: list[ToolResult] = []
    async with anyio.create_task_group() as outer, running(main, "cancelme", results) as pid:
        outer.cancel_scope.cancel()
    assert results == []
    await until(lambda: not Path(f"/proc/{pid}").exists())
    assert (await main.call("echo", {"value": 1})).output == 1


async def test_a_deadline_of_the_callers_own_works_like_any_cancellation(main: Session) -> None:
    with anyio.move_on_after(0.2) as scope:
        await main.call("rest", {"number": 1, "seconds": 100})
    assert scope.cancelled_caught
    assert (await main.call("echo", {"value": 1})).output == 1


async def test_a_tool_can_notice_that_it_was_cancelled(main: Session) -> None:
    under_way = anyio.Event()
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            await main.call("watch_for_cancellation", on_progress=lambda *_: under_way.set())

        tasks.start_soon(call)
        await under_way.wait()
        tasks.cancel_scope.cancel()
    await until((main.workspace / "noticed").exists)


async def test_a_call_that_is_cancelled_while_it_waits_never_runs(main: Session) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(main.call, "log_its_span", {"number": 1})
        await anyio.sleep(0.005)
        with anyio.move_on_after(0.005):
            await main.call("log_its_span", {"number": 2})
    assert (await main.call("log_its_span", {"number": 3})).output == 3
    assert "2" not in (main.workspace / "log").read_text()


async def test_calls_that_run_or_wait_when_their_session_is_closed_end_as_cancelled(
    shared: Supervisor, workspace: Path
) -> None:
    session = await shared.open_session("main", workspace=workspace)
    child = await session.open_child("branch")
    results: list[ToolResult] = []
    async with running(session, "closeme", results) as pid, running(child, "closemetoo", results) as other:
        await session.close()
    assert [type(result.error) for result in results] == [Cancelled, Cancelled]
    await until(lambda: not any(Path(f"/proc/{each}").exists() for each in (pid, other)))


async def test_calls_that_run_when_the_supervisor_is_left_end_as_cancelled(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    results: list[ToolResult] = []
    under_way = anyio.Event()
    async with anyio.create_task_group() as tasks, supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)

        async def call(number: int) -> None:
            arguments = {"number": number, "seconds": 100}
            results.append(await session.call("rest", arguments))

        for number in range(12):
            tasks.start_soon(call, number)
        await until(lambda: "busy" in repr(supervisor))
        under_way.set()
    assert [type(result.error) for result in results] == [Cancelled] * 12
    with pytest.raises(Exception, match=r"closed|not running"):
        await session.call("echo")


async def test_a_supervisor_that_is_left_by_an_exception_lets_it_through_and_cleans_up(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    with pytest.raises(BaseException) as caught:
        async with supervise(TOOLS) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace)
            await session.call("echo")
            raise KeyError("the user's own")
    assert caught.group_contains(KeyError) if isinstance(caught.value, BaseExceptionGroup) else caught.type is KeyError


async def test_a_call_that_waits_its_whole_time_for_a_process_is_overloaded_and_retryable(main: Session) -> None:
    async with anyio.create_task_group() as tasks:
        met = Meeting(main)
        tasks.start_soon(lambda: met.call("meet_and_write", 0, of=2))
        await anyio.sleep(0.2)
        result = await main.call("meet_and_write", {"number": 1}, timeout=0.2)
        (main.workspace / "go").touch()
    assert isinstance(result.error, Overloaded) and result.error.retryable
    assert result.usage.queue_s >= 0.2


async def test_a_supervisor_with_room_for_one_cell_serves_many_sessions(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise(TOOLS, max_cells=1) as supervisor:
        sessions = [await supervisor.open_session("main", workspace=workspace) for _ in range(3)]
        calls = [(session, number) for number in range(2) for session in sessions]
        results = await gather(*(lambda s=s, n=n: s.call("rest", {"number": n}) for s, n in calls))
        assert [result.unwrap() for result in results] == [number for _, number in calls]


async def test_two_supervisors_in_one_process_do_not_get_into_each_others_way(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise(TOOLS) as one, supervise(TOOLS) as other:
        sessions = [await supervisor.open_session("main", workspace=workspace) for supervisor in (one, other)]
        results = await gather(*(lambda s=s: s.call("rest", {"number": 1}) for s in sessions))
        assert [result.unwrap() for result in results] == [1, 1]
