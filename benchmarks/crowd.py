"""Many calls at once: closed loops, which show capacity, and arrivals at a fixed rate, which show waiting."""

import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from os import sched_getaffinity, sched_setaffinity
from pathlib import Path

import anyio

from toolcell import Session, Supervisor, Tool

from .workload import check_whole, pids

Call = Callable[[str], Awaitable[str]]


@contextmanager
def only_cores(cores: Sequence[int]) -> Iterator[None]:
    """Keep this process, and what it starts meanwhile, on these cores."""
    before = sched_getaffinity(0)
    sched_setaffinity(0, cores)
    try:
        yield
    finally:
        sched_setaffinity(0, before)


@asynccontextmanager
async def sessions(
    tool: Tool[..., str], number: int, directory: Path, *, standby: int = 1
) -> AsyncIterator[list[Session]]:
    """So many sessions, each with its own workspace and a cell that is warm. No kept process is evicted meanwhile."""
    room = 2 * number  # kept processes take at most three quarters of the places
    async with Supervisor(tools=[tool], standby=standby, max_cells=room) as supervisor:
        check_whole(supervisor)
        opened: list[Session] = []
        for each in range(number):
            workspace = directory / f"{tool.name}-{each}"
            workspace.mkdir(exist_ok=True)
            opened.append(await supervisor.open_session("main", workspace=workspace))
        for session in opened:
            (await session.call(tool.name, {"text": "warm"})).unwrap()
        kept = opened if tool.lifetime == "session" else []
        before = [await pids(session, tool.name) for session in kept]
        yield opened
        assert before == [await pids(session, tool.name) for session in kept], "a kept process was evicted"


async def throughput(callers: Sequence[Call], seconds: float) -> float:
    """Calls in a second, where each caller has one call under way all the time. Every reply is checked."""
    serial = itertools.count()
    done = 0
    start = time.perf_counter()
    end = start + seconds

    async def go_on(call: Call) -> None:
        nonlocal done
        while time.perf_counter() < end:
            text = f"{next(serial):064d}"
            assert await call(text) == text
            done += 1

    async with anyio.create_task_group() as group:
        for call in callers:
            group.start_soon(go_on, call)
    return done / (time.perf_counter() - start)


@dataclass(frozen=True, slots=True)
class Load:
    """What came of an open loop: latencies from the planned arrival on, and how many were refused."""

    offered: float
    latencies: Sequence[float]
    refused: int


async def open_loop(callers: Sequence[Call], rate: float, seconds: float) -> Load:
    """Calls that arrive at a fixed rate, however long the others take; those who wait count from their arrival on.

    More than `MOST_WAITING` at once are refused, as any server would.
    """
    latencies: list[float] = []
    refused = under_way = 0

    async def arrive(call: Call, text: str, planned: float) -> None:
        nonlocal under_way
        under_way += 1
        try:
            assert await call(text) == text
            latencies.append(time.perf_counter() - planned)
        finally:
            under_way -= 1

    start = time.perf_counter()
    async with anyio.create_task_group() as group:
        for number in range(max(1, int(rate * seconds))):
            planned = start + number / rate
            wait = planned - time.perf_counter()
            if wait > 0:
                await anyio.sleep(wait)
            elif number % 16 == 0:
                await anyio.sleep(0)  # late: let the others go on
            if under_way >= MOST_WAITING:
                refused += 1
                continue
            group.start_soon(arrive, callers[number % len(callers)], f"{number:064d}", planned)
    return Load(rate, latencies, refused)


MOST_WAITING = 200
