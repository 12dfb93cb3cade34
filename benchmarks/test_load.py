"""Calls that arrive at a fixed rate, whether those before have been answered or not: what waits, and from when on."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from .conftest import Publish
from .crowd import Call, open_loop, sessions, throughput
from .interleave import percentile
from .machine import cores
from .peers import awaited_executor
from .replay import recorded_time
from .report import Curve, Figure
from .workload import caller, echo, kept

pytestmark = pytest.mark.benchmark(timer=recorded_time)

SHARES = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)
SESSIONS = 8


def test_arrivals_at_a_fixed_rate(publish: Publish) -> None:
    publish(load, 10)


async def load(rounds: int, workspace: Path) -> Figure:
    """`rounds` tenths of a second for each rate."""
    window_s = 0.1 * rounds
    curves: list[Curve] = []
    notes: list[str] = []
    for name, tool in (("fresh", echo), ("kept", kept)):
        async with sessions(tool, SESSIONS, workspace) as opened:
            callers = [caller(each, tool.name) for each in opened]
            curves += await hockey_stick(name, "ours", callers, window_s, notes)
    with awaited_executor(cores()) as pool:
        curves += await hockey_stick("ProcessPoolExecutor", "peer", [pool] * SESSIONS, window_s, notes)
    title = f"Latency from the planned arrival on, against arrivals per second, over {SESSIONS} sessions"
    return Figure("load", title, curves=curves, notes=notes)


async def hockey_stick(
    name: str, role: str, callers: Sequence[Call], window_s: float, notes: list[str]
) -> tuple[Curve, Curve]:
    """p50 and p99 at shares of what a closed loop gets through."""
    capacity = await throughput(callers, window_s)
    half: list[tuple[float, float]] = []
    tail: list[tuple[float, float]] = []
    refused = 0
    for share in SHARES:
        found = await open_loop(callers, capacity * share, window_s)
        rate = round(found.offered)
        half.append((rate, percentile(found.latencies, 50) * 1e3))
        tail.append((rate, percentile(found.latencies, 99) * 1e3))
        refused += found.refused
    notes.append(f"{name}: a closed loop gets {capacity:,.0f} calls/s through; {refused} arrivals were refused.")
    x = f"arrivals/s, {name}"
    return Curve(f"{name}, p50", role, x, "ms", half), Curve(f"{name}, p99", role, x, "ms", tail)
