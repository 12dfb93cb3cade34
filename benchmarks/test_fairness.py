"""A quiet session beside one and two that flood: the time of its calls, compared with the time when it is alone."""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcell import Session, Supervisor, tool

from .conftest import Publish
from .interleave import Case, Measured, interleave, percentile
from .replay import recorded_time
from .report import Figure

pytestmark = pytest.mark.benchmark(timer=recorded_time)

CALLS, APART_S, IN_FLIGHT = 100, 0.015, 100
SETTLE_S = 0.2  # after the start of a flood, and after its end
LONE_S = 1.0


@tool
def echo() -> int:
    """Return."""
    return 1


@tool
def rest(seconds: float) -> None:
    """Rest: the cells are scarce, and the cores are not."""
    time.sleep(seconds)


@tool
def work(seconds: float) -> None:
    """Work: the cores are scarce."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class Floods:
    """Sessions with 100 calls in flight each. `rates` has the calls that ended in a second, by the number of floods."""

    def __init__(self, sessions: list[Session], work: Any, seconds: float) -> None:
        self._sessions = sessions
        self._work = work
        self._seconds = seconds
        self._ended = 0
        self.rates: dict[int, list[float]] = {}

    async def _one(self, session: Session) -> None:
        while True:
            await session.call(self._work, {"seconds": self._seconds})
            self._ended += 1

    @asynccontextmanager
    async def running(self, number: int) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            for session in self._sessions[:number]:
                for _ in range(IN_FLIGHT):
                    tasks.start_soon(self._one, session)
            await anyio.sleep(SETTLE_S)
            before, began = self._ended, time.perf_counter()
            yield
            self.rates.setdefault(number, []).append((self._ended - before) / (time.perf_counter() - began))
            tasks.cancel_scope.cancel()
        await anyio.sleep(SETTLE_S)


async def _quiet(session: Session) -> list[float]:
    took: list[float] = []
    for _ in range(CALLS):
        started = time.perf_counter()
        assert not (await session.call(echo)).is_error
        took.append(time.perf_counter() - started)
        await anyio.sleep(APART_S)
    return took


async def _beside(floods: Floods, number: int, quiet: Session) -> list[float]:
    async with floods.running(number):
        return await _quiet(quiet)


async def fairness(rounds: int, workspace: Path, *, name: str, cells: int | None, flood: Any, seconds: float) -> Figure:
    async with Supervisor([echo, rest, work], max_cells=cells) as supervisor:
        quiet, *others = [await supervisor.open_session("worker", workspace=workspace) for _ in range(3)]
        floods = Floods(others, flood, seconds)
        for _ in range(2):  # the first makes the cells
            async with floods.running(1):
                await anyio.sleep(LONE_S / 2)
        lone = floods.rates.pop(1)[-1]
        cases = [
            Case("beside one flood", "ours", partial(_beside, floods, 1, quiet)),
            Case("beside two floods", "ours", partial(_beside, floods, 2, quiet)),
            Case("alone", "floor", partial(_quiet, quiet)),
        ]
        measured = await interleave(cases, rounds)
    rates = {number: sum(found) / len(found) for number, found in floods.rates.items()}
    return Figure(
        f"fairness, {name}",
        f"A call of a session that makes few, beside sessions with {IN_FLIGHT} calls in flight: {name}",
        measured=measured,
        notes=[
            "p99: " + ", ".join(f"{case.name} {percentile(case.samples, 99) * 1e3:.2f} ms" for case in measured),
            "p99 ÷ alone: " + ", ".join(_ratios(measured, lambda samples: percentile(samples, 99))),
            f"One flood: {lone:,.0f} calls/s before the first call of another session, {rates[1]:,.0f} beside the "
            f"quiet one. Two floods: {rates[2]:,.0f} calls/s beside it.",
        ],
    )


def _ratios(measured: list[Measured], of: Callable[[list[float]], float]) -> list[str]:
    alone = next(case for case in measured if case.name == "alone")
    return [f"{case.name} {of(case.samples) / of(alone.samples):.2f}" for case in measured if case is not alone]


@pytest.mark.parametrize(
    ("name", "cells", "flood", "seconds"),
    [
        ("4 cells, 100 ms of rest", 4, rest, 0.1),
        ("4 cells, 5 ms of rest", 4, rest, 0.005),
        ("4 cells, 5 ms of work", 4, work, 0.005),
        ("100 ms of rest", None, rest, 0.1),
        ("5 ms of rest", None, rest, 0.005),
        ("5 ms of work", None, work, 0.005),
    ],
)
def test_a_quiet_session_beside_floods(
    publish: Publish, name: str, cells: int | None, flood: Any, seconds: float
) -> None:
    case = partial(fairness, name=name, cells=cells, flood=flood, seconds=seconds)
    publish(case, 5)
