"""Metrics: calls, errors, latency and usage of each tool and version, and the limits that they suggest.

`Metrics` is a journal: it takes the records that the dispatcher writes anyway, or those of a journal that was kept.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from threading import Lock
from typing import Any

from toolcell.journal import Record

from .histogram import Histogram

MAX_SERIES = 1_000  # 32 KB each at the most
OTHER, UNKNOWN = "(other)", "(unknown)"  # no tool can be named so
MARGIN = 1.5
LEAST_S = 1.0  # what a busy machine can add to any call
LEAST_MEMORY_BYTES = 128 * 1024 * 1024  # the interpreter's own address space, where that is what is limited
_MIB = 1024 * 1024
_AT_ONCE = 64  # calls that are counted together
_SECONDS, _BYTES = (1e-5, 1e5), (4096.0, 2.0**42)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Of `count` calls; each quantile within 2.5 % of a true one, `maximum` and `mean` exact."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    maximum: float


@dataclass(frozen=True, slots=True)
class ToolMetrics:
    """One tool in one version. `errors` counts by error kind; refused calls are calls too, but never ran.

    The quantiles are of calls that ran: seconds of wall clock, of waiting, of processor, and bytes of memory at peak.
    """

    tool: str
    version: str
    calls: int
    errors: Mapping[str, int]
    wall_s: Quantiles
    queue_s: Quantiles
    cpu_s: Quantiles
    max_rss_bytes: Quantiles

    @property
    def success_rate(self) -> float:
        """From 0 to 1, of all calls; 1 where there were none."""
        return 1.0 - sum(self.errors.values()) / self.calls if self.calls else 1.0


@dataclass(frozen=True, slots=True)
class SuggestedLimits:
    """What a tool's history suggests, from its `calls` that succeeded; `limits` is fit for `tool(fn, limits=…)`."""

    calls: int
    limits: Mapping[str, float]


class _Usages:
    """Four histograms, of calls that ended alike. What comes in waits for a few more, which are counted faster at once
    than one by one.
    """

    __slots__ = ("_lock", "_new", "cpu", "memory", "queue", "wall")

    def __init__(self) -> None:
        self.wall, self.queue, self.cpu = (Histogram(*_SECONDS) for _ in range(3))
        self.memory = Histogram(*_BYTES)
        self._new: list[float] = []  # four of each call
        self._lock = Lock()  # nothing is in both places, or in none, while another thread reads

    def count(self, wall_s: float, queue_s: float, cpu_s: float, memory_bytes: float) -> None:
        """Count one call."""
        self._new += wall_s, queue_s, cpu_s, memory_bytes
        if len(self._new) >= 4 * _AT_ONCE:
            with self._lock:
                new, self._new = self._new, []
                self._take(new)

    def add(self, other: "_Usages | None") -> "_Usages":
        """Count all calls that the other has counted."""
        if other is not None:
            with other._lock:
                self.wall, self.queue = self.wall.plus(other.wall), self.queue.plus(other.queue)
                self.cpu, self.memory = self.cpu.plus(other.cpu), self.memory.plus(other.memory)
                new = other._new[:]
            if new:
                self._take(new)
        return self

    def _take(self, new: list[float]) -> None:
        for at, histogram in enumerate((self.wall, self.queue, self.cpu, self.memory)):
            histogram.add(*new[at::4])


class _Series:
    __slots__ = ("calls", "errors", "failed", "succeeded")

    def __init__(self) -> None:
        self.calls = 0
        self.errors: dict[str, int] = {}
        self.succeeded: _Usages | None = None
        self.failed: _Usages | None = None

    def add(self, other: "_Series") -> None:
        self.calls += other.calls
        for kind, count in other.errors.items():
            self.errors[kind] = self.errors.get(kind, 0) + count
        if other.succeeded is not None:
            self.succeeded = (self.succeeded or _Usages()).add(other.succeeded)
        if other.failed is not None:
            self.failed = (self.failed or _Usages()).add(other.failed)


class Metrics:
    """Counts of calls. Implements `Journal`, so that `for record in kept: metrics.write(record)` takes up a history.

    Written on one thread, it may be read on any. Memory is bounded: past `max_series` pairs of tool and version, the
    rest is counted together as the tool "(other)"; calls of names that no tool has are counted as "(unknown)".
    """

    def __init__(self, max_series: int = MAX_SERIES) -> None:
        self._max_series = max_series
        self._series: dict[tuple[str, str], _Series] = {}

    def __repr__(self) -> str:
        return f"<Metrics of {len(self._series)} tools · {sum(one.calls for one in self._series.values()):,} calls>"

    def write(self, record: Record) -> None:
        """Count the call that `record` is of; records of anything else are passed over."""
        data = record.data
        if "attempt" not in data:
            return
        kind: str | None = data["error"]
        series = self._series.get((data["tool"], data["version"]))
        if series is None or kind == "unknown_tool":
            series = self._series_of(*((UNKNOWN, "") if kind == "unknown_tool" else (data["tool"], data["version"])))
        series.calls += 1
        if kind is not None:
            series.errors[kind] = series.errors.get(kind, 0) + 1
        if data["wall_s"] == 0:  # refused, or ended before it had a process
            return
        if kind is None:
            usages = series.succeeded = series.succeeded or _Usages()
        else:
            usages = series.failed = series.failed or _Usages()
        usages.count(data["wall_s"], data["queue_s"], data["cpu_s"], data["max_rss_bytes"])

    def _series_of(self, tool: str, version: str) -> _Series:
        series = self._series.get((tool, version))
        if series is None:
            if len(self._series) >= self._max_series and tool != UNKNOWN:
                tool, version = OTHER, ""
            series = self._series.setdefault((tool, version), _Series())
        return series

    # -- reading -----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[ToolMetrics]:
        return (_metrics_of(tool, version, series) for (tool, version), series in sorted(self._series.items()))

    def of(self, tool: str, version: str | None = None) -> ToolMetrics:
        """One tool's numbers, in one version or in all of them together; zeros for one that was never called."""
        return _metrics_of(tool, version or "", self._all_of(tool, version))

    def suggested_limits(self, tool: str, version: str | None = None, *, margin: float = MARGIN) -> SuggestedLimits:
        """Limits under which the calls that succeeded would have done so again.

        Each is the 99th percentile times `margin`, never less than the most that was seen, nor than 1 s or 128 MiB.
        Calls that failed do not count: what ran away would raise the limit that it ran into. Without a success there
        is nothing to suggest: `limits` is empty.
        """
        usages = self._all_of(tool, version).succeeded
        if usages is None:
            return SuggestedLimits(0, {})

        def enough(histogram: Histogram, least: float) -> float:
            return max(histogram.quantile(0.99) * margin, histogram.maximum, least)

        limits: dict[str, float] = {
            "wall_s": math.ceil(enough(usages.wall, LEAST_S) * 10) / 10,
            "cpu_s": math.ceil(enough(usages.cpu, LEAST_S) * 10) / 10,
            "memory_bytes": math.ceil(enough(usages.memory, LEAST_MEMORY_BYTES) / _MIB) * _MIB,
        }
        return SuggestedLimits(usages.wall.count, limits)

    def snapshot(self) -> list[dict[str, Any]]:
        """Everything as JSON data, one object for each tool and version."""
        return [asdict(one) | {"success_rate": one.success_rate} for one in self]

    def merge(self, other: "Metrics") -> None:
        """Add the counts of another supervisor's metrics to these. Exact but for `max_series`."""
        for (tool, version), theirs in list(other._series.items()):
            self._series_of(tool, version).add(theirs)

    def _all_of(self, tool: str, version: str | None) -> _Series:
        found = _Series()
        for (name, its_version), series in list(self._series.items()):
            if name == tool and version in (None, its_version):
                found.add(series)
        return found


def _metrics_of(tool: str, version: str, series: _Series) -> ToolMetrics:
    ran = _Usages().add(series.succeeded).add(series.failed)
    return ToolMetrics(
        tool,
        version,
        series.calls,
        dict(series.errors),
        _quantiles(ran.wall),
        _quantiles(ran.queue),
        _quantiles(ran.cpu),
        _quantiles(ran.memory),
    )


def _quantiles(histogram: Histogram) -> Quantiles:
    count = histogram.count
    p50, p90, p99 = (histogram.quantile(q) for q in (0.5, 0.9, 0.99))
    return Quantiles(count, histogram.total / count if count else 0.0, p50, p90, p99, histogram.maximum)
