"""A quiet session beside two that flood: the 99th percentile of its calls, as a ratio to the one when it is alone."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcell import Session, Supervisor, tool

ROUNDS, CALLS, APART_S, IN_FLIGHT = 4, 50, 0.05, 100


@tool
def echo() -> int:
    """Return."""
    return 1


@tool
def rest(seconds: float) -> None:
    """Rest: the cells are scarce, and the cores are not."""
    time.sleep(seconds)


@tool
def burn(seconds: float) -> None:
    """Burn: the cores are scarce."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


async def _quiet(session: Session) -> list[float]:
    took: list[float] = []
    for _ in range(CALLS):
        started = time.perf_counter()
        assert not (await session.call(echo)).is_error
        took.append(time.perf_counter() - started)
        await anyio.sleep(APART_S)
    return took


async def _measured(workspace: Path, cells: int | None, work: Any, seconds: float) -> dict[str, float]:
    """Alone and beside take turns, so that the machine's other load is in both."""
    ended = 0

    async def flood(session: Session, stop: anyio.Event) -> None:
        nonlocal ended
        while not stop.is_set():
            await session.call(work, {"seconds": seconds})
            ended += 1

    async def floods(
        sessions: list[Session], seconds: float, quiet: Session | None = None
    ) -> tuple[list[float], float]:
        """The times of the quiet session's calls, and the calls of the others that ended in a second."""
        stop = anyio.Event()
        took, rate = list[float](), 0.0
        async with anyio.create_task_group() as tasks:
            for session in sessions:
                for _ in range(IN_FLIGHT):
                    tasks.start_soon(flood, session, stop)
            await anyio.sleep(1.0)
            before, began = ended, time.perf_counter()
            if quiet is not None:
                took = await _quiet(quiet)
            await anyio.sleep(seconds)
            rate = (ended - before) / (time.perf_counter() - began)
            stop.set()
        return took, rate

    alone: list[float] = []
    beside: list[float] = []
    rate = lone_rate = 0.0
    async with Supervisor([echo, rest, burn], max_cells=cells) as supervisor:
        quiet, *others = [await supervisor.open_session("worker", workspace=workspace) for _ in range(3)]
        await quiet.call(echo)
        for _ in range(ROUNDS):
            alone += await _quiet(quiet)
            took, rate = await floods(others, 0.0, quiet)
            beside += took
        _none, lone_rate = await floods(others[:1], 3.0)
    alone.sort()
    beside.sort()
    of: Callable[[list[float], float], float] = lambda took, part: took[min(len(took) - 1, int(len(took) * part))] * 1e3  # noqa: E731
    return {
        "alone_p99_ms": round(of(alone, 0.99), 2),
        "beside_p99_ms": round(of(beside, 0.99), 2),
        "calls_s": round(rate),
        "lone_flood_calls_s": round(lone_rate),
        "p50_ratio": round(of(beside, 0.5) / of(alone, 0.5), 2),
        "p99_ratio": round(of(beside, 0.99) / of(alone, 0.99), 2),
    }


@pytest.mark.parametrize(
    ("cells", "work", "seconds"),
    [(4, rest, 0.1), (4, rest, 0.005), (4, burn, 0.005), (None, rest, 0.1), (None, rest, 0.005), (None, burn, 0.005)],
    ids=[
        "4 cells, 100 ms of rest",
        "4 cells, 5 ms of rest",
        "4 cells, 5 ms of work",
        "100 ms of rest",
        "5 ms of rest",
        "5 ms of work",
    ],
)
def test_a_quiet_session_beside_two_that_flood(
    benchmark: Any, tmp_path: Path, cells: int | None, work: Any, seconds: float
) -> None:
    run: Callable[[], Awaitable[dict[str, float]]] = lambda: _measured(tmp_path, cells, work, seconds)  # noqa: E731
    found = benchmark.pedantic(lambda: anyio.run(run), rounds=1, iterations=1)
    benchmark.extra_info.update(found)
    print(found)
