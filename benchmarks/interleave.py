"""Measuring several things so that their ratios mean something: in turns, in random order, with the raw samples kept.

A block is a handful of samples of one case. A round is one block of every case, in an order drawn anew. What drifts
(clock speed, a neighbour, the page cache) drifts for all cases of a round alike, so a ratio is taken within a round,
and the median and the spread are those of the rounds' ratios.
"""

import itertools
import math
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import anyio

Role = Literal["ours", "floor", "peer"]
Block = Callable[[], Awaitable[list[float]]]

PAUSE_S = 0.02  # long enough for a standby to be forked and to warm up (3 to 8 ms here), short against a model's turn
READY_S = 0.001
PAYLOAD_BYTES = 64
_RESAMPLES = 1000
_serial = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure. `block` gives a few samples, mostly seconds, after it has checked each reply."""

    name: str
    role: Role
    block: Block


@dataclass(frozen=True, slots=True)
class Measured:
    """The raw samples of one case, in the unit of its figure, block by block."""

    name: str
    role: Role
    blocks: Sequence[Sequence[float]]

    @property
    def samples(self) -> list[float]:
        return [sample for block in self.blocks for sample in block]


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with what lies around it."""

    median: float
    p10: float
    p90: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratios of all rounds, and the bootstrap 95 % confidence interval of their median."""

    rounds: Spread
    low: float
    high: float


def calls(
    call: Callable[[str], Awaitable[str]],
    samples: int,
    pause_s: float = 0.0,
    ready: Callable[[], bool] = lambda: True,
) -> Block:
    """A block of calls that give back the text that they are given, a new one each time. Each comes `pause_s` after the
    one before, or after everything was `ready` for it, if that is later."""

    async def block() -> list[float]:
        taken: list[float] = []
        for _ in range(samples):
            text = f"{next(_serial):0{PAYLOAD_BYTES}d}"
            while not ready():
                await anyio.sleep(READY_S)
            if pause_s:
                await anyio.sleep(pause_s)
            start = time.perf_counter()
            reply = await call(text)
            taken.append(time.perf_counter() - start)
            assert reply == text, (reply, text)
        return taken

    return block


def timed(action: Callable[[], object], samples: int = 1, loops: int = 1) -> Block:
    """A block of timed calls of a function that checks its own work; each sample is the average of `loops`."""

    async def block() -> list[float]:
        taken: list[float] = []
        for _ in range(samples):
            start = time.perf_counter()
            for _ in range(loops):
                action()
            taken.append((time.perf_counter() - start) / loops)
        return taken

    return block


async def interleave(cases: Sequence[Case], rounds: int) -> list[Measured]:
    """Measure every case once to warm it up, then `rounds` times in turns."""
    for case in cases:
        await case.block()
    taken: Mapping[str, list[list[float]]] = {case.name: [] for case in cases}
    order = list(cases)
    for _ in range(rounds):
        random.shuffle(order)
        for case in order:
            taken[case.name].append(await case.block())
    return [Measured(case.name, case.role, taken[case.name]) for case in cases]


def spread(values: Sequence[float]) -> Spread:
    """Median, 10th and 90th percentile, by linear interpolation."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return Spread(statistics.median(values), tenths[0], tenths[-1])


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of all do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def ratio(ours: Measured, other: Measured) -> Ratio:
    """How many times as long ours takes as the other, round by round."""
    pairs = zip(ours.blocks, other.blocks, strict=True)
    ratios = [statistics.median(mine) / statistics.median(theirs) for mine, theirs in pairs]
    medians = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(_RESAMPLES))
    return Ratio(spread(ratios), medians[_RESAMPLES // 40], medians[-_RESAMPLES // 40])
