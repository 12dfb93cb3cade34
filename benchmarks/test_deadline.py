"""How long after its deadline a call is over for its caller, and how long until no process of it is left."""

import os
import select
import time
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from toolcell import Session, Supervisor, ToolResult

from .conftest import Publish
from .interleave import Block, Case, interleave
from .peers import NotHere, pebble_timeout
from .processes import descendants
from .replay import recorded_time
from .report import Figure
from .workload import check_whole, linger

pytestmark = pytest.mark.benchmark(timer=recorded_time)

DEADLINE_S = 0.05
CHILDREN = 3
PROCESSES = 1 + 2 * CHILDREN  # of the call: its own, its children, and a child of each
SAMPLES = 5
PEER = "pebble, schedule(…, timeout=…)"


def test_a_deadline_that_passes(publish: Publish) -> None:
    publish(deadline, 20)


async def deadline(rounds: int, workspace: Path) -> Figure:
    absent: dict[str, str] = {}
    async with Supervisor(tools=[linger]) as supervisor:
        check_whole(supervisor)
        session = await supervisor.open_session("main", workspace=workspace)
        cases = [
            Case("deadline → every process gone", "ours", ends(session, supervisor, wait_for_all=True)),
            Case("deadline → the caller has Timeout", "ours", ends(session, supervisor, wait_for_all=False)),
            Case("a timer of the event loop", "floor", timer),
        ]
        try:
            with pebble_timeout(DEADLINE_S) as sample:

                async def peer() -> list[float]:
                    return [sample()]

                measured = await interleave([*cases, Case(PEER, "peer", peer)], rounds)
        except NotHere as reason:
            absent[PEER] = str(reason)
            measured = await interleave(cases, rounds)
    title = f"A deadline passes: a tool with {PROCESSES} processes, deaf to SIGTERM"
    return Figure("deadline", title, measured, absent)


async def timer() -> list[float]:
    taken: list[float] = []
    for _ in range(SAMPLES):
        start = time.perf_counter()
        await anyio.sleep(DEADLINE_S)
        taken.append(time.perf_counter() - start - DEADLINE_S)
    return taken


def ends(session: Session, supervisor: Supervisor, *, wait_for_all: bool) -> Block:
    async def block() -> list[float]:
        return [await one(session, supervisor, wait_for_all=wait_for_all) for _ in range(SAMPLES)]

    return block


async def one(session: Session, supervisor: Supervisor, *, wait_for_all: bool) -> float:
    """Seconds from the deadline of a call to the end of it, seen by its caller or in its processes."""
    ended: list[float] = []
    gone: list[float] = []

    async def call() -> None:
        result: ToolResult = await session.call("linger", {"children": CHILDREN}, timeout=DEADLINE_S)
        ended.append(time.perf_counter())
        assert result.error is not None and result.error.kind == "timeout", result

    async with anyio.create_task_group() as group:
        start = time.perf_counter()
        group.start_soon(call)
        pids: list[int] = []
        while len(pids) < PROCESSES:
            await anyio.sleep(0.002)
            pids = processes_of_calls(supervisor)
            assert not ended, "the deadline came before the processes did"
        if wait_for_all:
            # In a thread: the loop has the deadline to look after.
            gone.append(await anyio.to_thread.run_sync(when_ended, pids))
    while any(not cell.free for cell in supervisor.pool.cells.values()):
        await anyio.sleep(0.005)  # swept, and the next standby is there
    return (gone if wait_for_all else ended)[0] - start - DEADLINE_S


def processes_of_calls(supervisor: Supervisor) -> list[int]:
    try:
        return [pid for cell in supervisor.pool.cells.values() if cell.pid for pid in descendants(cell.pid)]
    except OSError:  # one of them ended while they were listed
        return []


def when_ended(pids: list[int]) -> float:
    """The time at which the last of these processes has ended."""
    poll = select.poll()
    open_fds = {os.pidfd_open(pid) for pid in pids}
    for fd in open_fds:
        poll.register(fd, select.POLLIN)
    while open_fds:
        for fd, _event in poll.poll():
            poll.unregister(fd)
            os.close(fd)
            open_fds.remove(fd)
    return time.perf_counter()
