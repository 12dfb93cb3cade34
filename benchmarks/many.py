"""Ten thousand sessions, a hundred of them active: `python -m benchmarks.many OPEN ACTIVE ROUNDS DIRECTORY`.

A program of its own, so that what the supervisor's memory grows by is not what another figure has left free. Prints
JSON: seconds of each opening, seconds of second calls with few and with many sessions open, and bytes.
"""

import gc
import json
import os
import resource
import sys
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from toolcell import Session, Supervisor
from toolcell.supervisor import runtime_of

from .processes import memory_of
from .workload import caller, check_whole, echo

PAUSE_S = 0.02
CALLS = 15  # in a block


class Forgetful:
    """A journal that keeps nothing: the one by default fills up to a bound of its own."""

    def write(self, record: object) -> None:
        pass


def _bytes() -> int:
    gc.collect()
    return memory_of(os.getpid()).uss


class Crowd:
    def __init__(self, supervisor: Supervisor, directory: Path) -> None:
        self.supervisor = supervisor
        self.directory = directory
        self.number = 0
        self.opened: list[float] = []

    async def open(self, number: int) -> list[Session]:
        """So many sessions, each on a workspace of its own that is there already."""
        directories = [self.directory / str(self.number + each) for each in range(number)]
        for each in directories:
            each.mkdir()
        self.number += number
        sessions: list[Session] = []
        for each in directories:
            start = time.perf_counter()
            sessions.append(await self.supervisor.open_session("main", workspace=each))
            self.opened.append(time.perf_counter() - start)
        return sessions


async def second_calls(sessions: Sequence[Session]) -> list[float]:
    """Of some of these sessions, whose cells are there, each to a standby."""
    taken: list[float] = []
    for session in sessions[:CALLS]:
        await anyio.sleep(PAUSE_S)
        start = time.perf_counter()
        assert await caller(session, "echo")("again") == "again"
        taken.append(time.perf_counter() - start)
    return taken


async def bytes_of_a_call(sessions: Sequence[Session]) -> float:
    """What a call leaves behind in a session that is parked again: Python's own count, as it is about a page.

    The first half fills what is allocated once, and all cells that there may be, so that those are in both counts.
    """
    tracemalloc.start()
    counted: list[int] = []
    half = len(sessions) // 2
    for some in (sessions[:half], sessions[half:]):
        for session in some:
            assert await caller(session, "echo")("once") == "once"
        gc.collect()
        counted.append(tracemalloc.get_traced_memory()[0])
    return (counted[1] - counted[0]) / half


async def main(open_: int, active: int, rounds: int, directory: Path) -> dict[str, Any]:
    _soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a cell takes thirteen
    async with Supervisor(tools=[echo], max_cells=active, journal=Forgetful()) as supervisor:
        check_whole(supervisor)
        crowd = Crowd(supervisor, directory)
        working = await crowd.open(active)
        first: list[float] = []
        for session in working:
            start = time.perf_counter()
            assert await caller(session, "echo")("first") == "first"
            first.append(time.perf_counter() - start)
        assert len(runtime_of(supervisor).pool.cells) == active
        few: list[list[float]] = []
        many: list[list[float]] = []
        crowd.opened.clear()
        points = [(float(active), _bytes() / 1024**2)]
        before, waiting = _bytes(), list[Session]()
        for step in range(1, 11):
            waiting += await crowd.open((open_ - active) * step // 10 - len(waiting))
            points.append((float(active + len(waiting)), _bytes() / 1024**2))
        never_called = (_bytes() - before) / len(waiting)
        for number in range(rounds):  # with all open, and with few, in turns
            many.append(await second_calls(working[number % 10 :]))
            for session in waiting:
                await session.close()
            few.append(await second_calls(working[number % 10 :]))
            if number < rounds - 1:
                waiting = await crowd.open(open_ - active)
        return {
            "opened": crowd.opened,
            "first": first,
            "few": few,
            "many": many,
            "never_called": never_called,
            "called": await bytes_of_a_call(await crowd.open(2 * active)),
            "points": points,
        }


if __name__ == "__main__":
    open_, active, rounds = map(int, sys.argv[1:4])
    print(json.dumps(anyio.run(main, open_, active, rounds, Path(sys.argv[4]))))
