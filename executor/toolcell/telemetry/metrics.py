"""Metrics: calls, errors, latency and usage of each tool and version.

`Metrics` is a journal: it takes the records that the dispatcher writes, or those of a stored journal.
"""

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from threading import RLock
from typing import Any

from toolcell.store.journal import Record
from toolcell_tools.preview import counted

from .histogram import Histogram

MAX_SERIES = 1_000  # at most 32 KB each
MAX_NODES = 1_000  # each with its own series of at most MAX_SERIES
OTHER, UNKNOWN = "(other)", "(unknown)"  # not valid as tool names
_AT_ONCE = 128  # calls counted together
_SECONDS, _BYTES = (1e-5, 1e5), (4096.0, 2.0**42)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles of `count` calls, each with an error of at most 2.5 %. `maximum` and `mean` are exact."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    maximum: float


@dataclass(frozen=True, slots=True)
class ToolMetrics:
    """One tool in one version. `errors` counts by error kind; refused calls are included. The quantiles are of calls
    that ran: wall-clock time, waiting time and CPU time in seconds, and peak memory in bytes.
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
        """The share of successful calls, from 0 to 1. 1 if there were no calls."""
        return 1.0 - sum(self.errors.values()) / self.calls if self.calls else 1.0


class _Usages:
    """Four histograms of calls that ran."""

    __slots__ = ("cpu", "memory", "queue", "wall")

    def __init__(self) -> None:
        self.wall, self.queue, self.cpu = (Histogram(*_SECONDS) for _ in range(3))
        self.memory = Histogram(*_BYTES)

    def count(self, calls: Sequence[Mapping[str, Any]]) -> None:
        """Count calls, at least one."""
        self.wall.add([call["wall_s"] for call in calls])
        self.queue.add([call["queue_s"] for call in calls])
        self.cpu.add([call["cpu_s"] for call in calls])
        self.memory.add([call["max_rss_bytes"] for call in calls])

    def add(self, other: "_Usages") -> None:
        """Add the counts of the other."""
        self.wall, self.queue = self.wall.plus(other.wall), self.queue.plus(other.queue)
        self.cpu, self.memory = self.cpu.plus(other.cpu), self.memory.plus(other.memory)


class _Series:
    __slots__ = ("calls", "errors", "usages")

    def __init__(self) -> None:
        self.calls = 0
        self.errors: dict[str, int] = {}
        self.usages = _Usages()

    def copy(self) -> "_Series":
        copied = _Series()
        copied.add(self)
        return copied

    def add(self, other: "_Series") -> None:
        self.calls += other.calls
        for kind, count in other.errors.items():
            self.errors[kind] = self.errors.get(kind, 0) + count
        self.usages.add(other.usages)


_Key = tuple[str, str, str | None]
"""A tool, its version, and the error kind of a call's end."""


class Metrics:
    """Counts of calls. Implements `Journal`, so `for record in kept: metrics.write(record)` counts a stored journal.

    One thread may write, and any thread may read. Memory is bounded: after `max_series` pairs of tool and version,
    further pairs are counted together as the tool "(other)". Calls of unknown tools are counted as "(unknown)".
    Calls on the nodes of a cluster are counted by node too.
    """

    def __init__(self, max_series: int = MAX_SERIES) -> None:
        self._max_series = max_series
        self._series: dict[tuple[str, str], _Series] = {}
        self._new: deque[Mapping[str, Any]] = deque()  # not counted yet: counting many at once is faster
        self._lock = RLock()  # held while records are counted, and while the counts are read
        self._nodes: dict[str, Metrics] = {}

    def __repr__(self) -> str:
        with self._counted() as found:
            calls = sum(one.calls for one in found.values())
            return f"<Metrics of {counted(len(found), 'tool')} · {counted(calls, 'call')}>"

    def write(self, record: Record) -> None:
        """Count the call of `record`. Records of other kinds are ignored."""
        data = record.data
        if "attempt" in data:
            self._add(data)
            if "node" in data:
                self._of_node(data["node"])._add(data)

    def _add(self, data: Mapping[str, Any]) -> None:
        self._new.append(data)
        if len(self._new) >= _AT_ONCE:
            with self._counted():
                pass

    def _of_node(self, node: str) -> "Metrics":
        found = self._nodes.get(node)
        if found is None:
            if len(self._nodes) >= MAX_NODES:
                node = OTHER
            with self._lock:
                found = self._nodes.setdefault(node, Metrics(self._max_series))
        return found

    @contextmanager
    def _counted(self) -> Generator[Mapping[tuple[str, str], _Series], None, None]:
        """The counts of all records so far, valid while this context is entered."""
        with self._lock:
            alike: dict[_Key, list[Mapping[str, Any]]] = {}
            while self._new:
                data = self._new.popleft()
                alike.setdefault((data["tool"], data["version"], data["error"]), []).append(data)
            for (tool, version, error), calls in alike.items():
                self._count(tool, version, error, calls)
            yield self._series

    def _count(self, tool: str, version: str, error: str | None, calls: Sequence[Mapping[str, Any]]) -> None:
        series = self._series_of(UNKNOWN, "") if error == "unknown_tool" else self._series_of(tool, version)
        series.calls += len(calls)
        if error is not None:
            series.errors[error] = series.errors.get(error, 0) + len(calls)
        ran = [
            call for call in calls if call["wall_s"] != 0
        ]  # not refused, and not ended before a process was assigned
        if ran:
            series.usages.count(ran)

    def _series_of(self, tool: str, version: str) -> _Series:
        series = self._series.get((tool, version))
        if series is None:
            if len(self._series) >= self._max_series and tool != UNKNOWN:
                tool, version = OTHER, ""
            series = self._series.setdefault((tool, version), _Series())
        return series

    # -- reading -----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[ToolMetrics]:
        with self._counted() as found:
            return iter([_metrics_of(tool, version, series) for (tool, version), series in sorted(found.items())])

    @property
    def nodes(self) -> Mapping[str, "Metrics"]:
        """The metrics of the calls on each node of a cluster, by the node's id. Empty without a cluster."""
        with self._lock:
            return dict(self._nodes)

    def totals(self) -> tuple[int, dict[str, int]]:
        """The number of all calls, and of their errors by kind."""
        with self._counted() as found:
            errors: dict[str, int] = {}
            for series in found.values():
                for kind, count in series.errors.items():
                    errors[kind] = errors.get(kind, 0) + count
            return sum(series.calls for series in found.values()), errors

    def of(self, tool: str, version: str | None = None) -> ToolMetrics:
        """The metrics of one tool, for one version or for all versions together. Zeros if the tool was never called."""
        return _metrics_of(tool, version or "", self._all_of(tool, version))

    def snapshot(self) -> list[dict[str, Any]]:
        """Everything as JSON data, one object for each tool and version."""
        return [asdict(one) | {"success_rate": one.success_rate} for one in self]

    def merge(self, other: "Metrics") -> None:
        """Add the counts of another supervisor's metrics to these. The sums are exact, except beyond `max_series`."""
        for node, metrics in other.nodes.items():
            self._of_node(node).merge(metrics)
        with other._counted() as found:
            copies = {key: series.copy() for key, series in found.items()}
        with self._lock:  # one lock at a time: another thread may be merging these into the other
            for (tool, version), theirs in copies.items():
                self._series_of(tool, version).add(theirs)

    def _all_of(self, tool: str, version: str | None) -> _Series:
        whole = _Series()
        with self._counted() as found:
            for (name, its_version), series in found.items():
                if name == tool and version in (None, its_version):
                    whole.add(series)
        return whole


def _metrics_of(tool: str, version: str, series: _Series) -> ToolMetrics:
    ran = series.usages
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
