"""How long after its deadline a call is over for its caller, and how long until no process of it is left."""

import os
import select
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from toolcell import Session, Supervisor, ToolResult
from toolcell.supervisor import runtime_of

from .conftest import Publish
from .interleave import Block, Case, Measured, interleave
from .peers import NotHere, pebble_timeout
from .processes import of_the_call
from .replay import recorded_time
from .report import Figure
from .workload import check_whole, linger

pytestmark = pytest.mark.benchmark(timer=recorded_time)

DEADLINE_S = 0.1
CHILDREN = 3
PROCESSES = 1 + 2 * CHILDREN  # of the call: its own, its children, and a child of each
SAMPLES = 5
TRIES = 7
GONE, TOLD = "deadline → every process gone", "deadline → the caller has Timeout"
PEER = "pebble, schedule(…, timeout=…)"


def test_a_deadline_that_passes(publish: Publish) -> None:
    publish(deadline, 20)


async def deadline(rounds: int, workspace: Path) -> Figure:
    absent: dict[str, str] = {}
    told: list[list[float]] = []
    with ExitStack() as stack:
        async with Supervisor(tools=[linger]) as supervisor:
            check_whole(supervisor)
            session = await supervisor.open_session("main", workspace=workspace)
            cases = [Case(GONE, "ours", ends(session, supervisor, told)), Case("a timer of the loop", "floor", timer)]
            try:
                cases.append(Case(PEER, "peer", timed_out(stack.enter_context(pebble_timeout(DEADLINE_S)))))
            except NotHere as reason:
                absent[PEER] = str(reason)
            measured = await interleave(cases, rounds)
    measured.insert(1, Measured(TOLD, "ours", told[1:]))  # the first block was for warming up
    title = f"A deadline passes: a tool with {PROCESSES} processes, deaf to SIGTERM"
    return Figure("deadline", title, measured, absent)


def timed_out(sample: Callable[[], float]) -> Block:
    async def block() -> list[float]:
        return [sample()]

    return block


async def timer() -> list[float]:
    taken: list[float] = []
    for _ in range(SAMPLES):
        start = time.perf_counter()
        await anyio.sleep(DEADLINE_S)
        taken.append(time.perf_counter() - start - DEADLINE_S)
    return taken


def ends(session: Session, supervisor: Supervisor, told: list[list[float]]) -> Block:
    async def block() -> list[float]:
        both = [await sample(session, supervisor) for _ in range(SAMPLES)]
        told.append([heard for heard, _gone in both])
        return [gone for _heard, gone in both]

    return block


async def sample(session: Session, supervisor: Supervisor) -> tuple[float, float]:
    """One call; where the machine is so busy that the deadline comes before all processes are there, a longer one."""
    for tried in range(TRIES):
        found = await one(session, supervisor, DEADLINE_S * 2**tried)
        if found is not None:
            return found
    raise AssertionError(f"{PROCESSES} processes are not forked within {DEADLINE_S * 2**TRIES / 2:g} s here")


async def one(session: Session, supervisor: Supervisor, deadline_s: float) -> tuple[float, float] | None:
    """Seconds from the deadline of a call until its caller has heard of it, and until its last process has ended."""
    ended: list[float] = []

    async def call() -> None:
        result: ToolResult = await session.call("linger", {"children": CHILDREN}, timeout=deadline_s)
        ended.append(time.perf_counter())
        assert result.error is not None and result.error.kind == "timeout", result

    async with anyio.create_task_group() as group:
        start = time.perf_counter()
        group.start_soon(call)
        pids: list[int] = []
        while len(pids) < PROCESSES and not ended:
            await anyio.sleep(0.002)
            pids = processes_of_calls(supervisor)
        # In a thread, for the loop has the deadline to look after.
        gone = 0.0 if ended else await anyio.to_thread.run_sync(when_ended, pids)
    while any(not cell.free for cell in runtime_of(supervisor).pool.cells.values()):
        await anyio.sleep(0.005)  # swept, and the next standby is there
    return (ended[0] - start - deadline_s, gone - start - deadline_s) if gone else None


def processes_of_calls(supervisor: Supervisor) -> list[int]:
    try:
        return [pid for cell in runtime_of(supervisor).pool.cells.values() if cell.pid for pid in of_the_call(cell.pid)]
    except OSError:  # one of them ended while they were listed
        return []


def when_ended(pids: list[int]) -> float:
    """The time at which the last of these processes has ended; 0 where one is not there any more.

    One after the other is waited for: to hear of each end as it comes, this thread would take the processor and the
    interpreter's lock from the loop that is measured, once for each process.
    """
    with ExitStack() as stack:
        waits: list[select.poll] = []
        for pid in pids:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                return 0.0
            stack.callback(os.close, fd)
            waits.append(select.poll())
            waits[-1].register(fd, select.POLLIN)
        for wait in waits:
            wait.poll()
        return time.perf_counter()
