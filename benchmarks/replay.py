"""Our raw samples in pytest-benchmark's own statistics, so that its JSON, its history and its comparisons hold them.

pytest-benchmark times one thing after the other, and ratios need turns. So the samples are taken by `interleave`, and
played back afterwards: a timer that stands still, and a target that sets it forward by the next sample.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

_now = 0.0
_samples: Iterator[float] = iter(())


class Benchmark(Protocol):
    """The `benchmark` fixture, which has no types of its own, as far as it is used here."""

    disabled: bool
    extra_info: dict[str, Any]

    def pedantic(self, target: Callable[[], None], *, rounds: int) -> None: ...


def recorded_time() -> float:
    """The timer, for `pytest.mark.benchmark(timer=…)`."""
    return _now


def _next_sample() -> None:
    global _now
    _now += next(_samples)


def play(benchmark: Benchmark, samples: Sequence[float]) -> None:
    """Make these samples the rounds of the benchmark."""
    global _samples
    _samples = iter(samples)
    benchmark.pedantic(_next_sample, rounds=len(samples))
