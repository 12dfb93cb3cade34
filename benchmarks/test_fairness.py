"""A quiet session beside two that flood: the 99th percentile of its calls, as a ratio to the one when it is alone."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcell import Session, Supervisor, tool

CALLS, APART_S, IN_FLIGHT = 200, 0.05, 100


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
    return sorted(took)


async def _measured(workspace: Path, cells: int | None, work: Any, seconds: float) -> dict[str, float]:
    stop = anyio.Event()

    async def flood(session: Session) -> None:
        while not stop.is_set():
            await session.call(work, {"seconds": seconds})

    async with Supervisor([echo, rest, burn], max_cells=cells) as supervisor:
        quiet, *others = [await supervisor.open_session("worker", workspace=workspace) for _ in range(3)]
        await quiet.call(echo)
        alone = await _quiet(quiet)
        async with anyio.create_task_group() as tasks:
            for session in others:
                for _ in range(IN_FLIGHT):
                    tasks.start_soon(flood, session)
            await anyio.sleep(1.0)
            beside = await _quiet(quiet)
            stop.set()
    of: Callable[[list[float], float], float] = lambda took, part: took[min(len(took) - 1, int(len(took) * part))] * 1e3  # noqa: E731
    return {
        "alone_p99_ms": round(of(alone, 0.99), 2),
        "beside_p99_ms": round(of(beside, 0.99), 2),
        "p50_ratio": round(of(beside, 0.5) / of(alone, 0.5), 2),
        "p99_ratio": round(of(beside, 0.99) / of(alone, 0.99), 2),
    }


@pytest.mark.parametrize(
    ("cells", "work", "seconds"),
    [(4, rest, 0.1), (4, rest, 0.005), (4, burn, 0.005), (None, rest, 0.1), (None, burn, 0.005)],
    ids=["4 cells, 100 ms of rest", "4 cells, 5 ms of rest", "4 cells, 5 ms of work", "100 ms of rest", "5 ms of work"],
)
def test_a_quiet_session_beside_two_that_flood(
    benchmark: Any, tmp_path: Path, cells: int | None, work: Any, seconds: float
) -> None:
    run: Callable[[], Awaitable[dict[str, float]]] = lambda: _measured(tmp_path, cells, work, seconds)  # noqa: E731
    found = benchmark.pedantic(lambda: anyio.run(run), rounds=1, iterations=1)
    benchmark.extra_info.update(found)
    print(found)
