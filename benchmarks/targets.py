"""What was set as a target, and whether a run reaches it: the one table of all of them."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table

from .interleave import Measured, Spread, percentile, spread
from .report import Figure, amount, short, text_of

Kind = Literal["times", "faster", "over", "tails", "median", "p99"]
MIB, MS, US = 1024 * 1024, 1e-3, 1e-6


@dataclass(frozen=True, slots=True)
class Target:
    """One case of ours, against another case of its figure or by itself.

    `times`: ours ÷ the other. `faster`: the other ÷ ours. `over`: ours minus the other, in the figure's unit.
    `tails`: the 99th percentile of ours ÷ that of the other. `median`, `p99`: ours alone, in the figure's unit. At most
    `must`; with `faster` and `at_least`, at least.
    """

    figure: str
    ours: str
    against: str
    must: float
    moonshot: float | None = None
    kind: Kind = "times"
    at_least: bool = False

    def reaches(self, value: float, bound: float) -> bool:
        """Whether a value is as good as the bound."""
        return value >= bound if self.at_least or self.kind == "faster" else value <= bound

    def found(self, ours: Measured, other: Measured | None) -> Spread:
        """The value, with its spread over the rounds."""
        if other is None:
            if self.kind == "p99":
                value = percentile(ours.samples, 99)
                return Spread(value, value, value)
            return spread(ours.samples)
        if self.kind == "tails":
            value = percentile(ours.samples, 99) / percentile(other.samples, 99)
            return Spread(value, value, value)
        pairs = [
            (statistics.median(mine), statistics.median(theirs))
            for mine, theirs in zip(ours.blocks, other.blocks, strict=True)
        ]
        if self.kind == "over":
            return spread([mine - theirs for mine, theirs in pairs])
        return spread([theirs / mine if self.kind == "faster" else mine / theirs for mine, theirs in pairs])


_PING_PONG, _TWO_CORES = "ping-pong, free", "ping-pong, two cores"
_POOL, _APART = "ProcessPoolExecutor", "20 ms apart"
_FORK = "fork + exit + wait, as a zygote"

TARGETS: Sequence[Target] = (
    Target("kept", "kept", _PING_PONG, 2.5, 1.8),
    Target("kept", "kept", _TWO_CORES, 2.5, 1.8),
    Target("kept", "kept", _POOL, 0.5),
    Target("standby", f"standby, {_APART}", f"{_POOL}, {_APART}", 1.0, 0.6),
    Target("standby", f"standby, {_APART}", f"{_POOL}, back to back", 1.0, 0.6),
    Target("fresh", f"on demand, {_APART}", f"{_FORK}, {_APART}", 1.6, 1.3),
    Target("fresh", "on demand, back to back", _FORK, 1.6, 1.3),
    Target("fresh", f"on demand, {_APART}", "bwrap + Python", 15, None, "faster"),
    Target("sustained", "fresh, forked on demand", f"{_FORK}, all cores", 0.6, 0.8, at_least=True),
    Target("sustained", "fresh, standby", f"{_FORK}, all cores", 0.6, 0.8, at_least=True),
    Target("cell", "first call, sessions 0.1 s apart", "bwrap /bin/true", 1.5, 1.0),
    Target("cell", "first call, sessions 0.1 s apart", "bwrap python3 -I -S -c pass", 5, None, "faster"),
    Target("cell", "first call, right behind another's", "bwrap /bin/true", 1.5, 1.0),
    Target("cell", "first call, right behind another's", "bwrap python3 -I -S -c pass", 5, None, "faster"),
    Target("cell", "first call, no cell made ahead", "bwrap /bin/true", 1.5, 1.0),
    Target("cell", "first call, no cell made ahead", "bwrap python3 -I -S -c pass", 5, None, "faster"),
    Target("handle", "memory.search", _PING_PONG, 2.5, 1.8),
    Target("handle", "memory.search", _TWO_CORES, 2.5, 1.8),
    *(Target("grep", f"grep, {name}", f"ripgrep, {name}", 3.0) for name in ("a word", "an expression")),
    Target("codec", "toolcell", "jsonschema-rs + msgpack", 2.0, 1.3),
    *(
        Target("memory-search", name, f"FTS5 + numpy, {name}", 2.0, 1.5)
        for name in ("rare words", "usual words", "common words")
    ),
    Target("echo-1 KB", "kept", _POOL, 1.0),
    Target("echo-100 KB", "kept", _POOL, 1.0),
    Target("echo-10 MB", "kept", _POOL, 1.0),
    Target("echo-10 MB", "kept", "socketpair, copied there and back", 2.0),
    Target("memory", "idle cell: init + standby, USS", "", 3 * MIB, 2 * MIB, "median"),
    Target("memory", "standby, USS", "", 1 * MIB, 0.6 * MIB, "median"),
    Target("sessions", "open a session", "", 100 * US, None, "median"),
    Target("sessions", "second call, 10,000 open", "second call, 100 open", 1.1),
    Target("parked", "never called", "", 10 * 1024, None, "median"),
    Target("parked", "called once", "", 10 * 1024, None, "median"),
    Target("deadline", "deadline → the caller has Timeout", "", 4 * MS, None, "median"),
    Target("deadline", "deadline → the caller has Timeout", "", 8 * MS, None, "p99"),
    Target("deadline", "deadline → every process gone", "", 4 * MS, None, "median"),
    Target("deadline", "deadline → every process gone", "", 8 * MS, None, "p99"),
    Target("crash", "standby", "", 2 * MS, 0.5 * MS, "median"),
    Target("crash", "kept process", "", 2 * MS, None, "median"),
    Target("crash", "forked on demand", "", 2 * MS, None, "median"),
    *(
        Target(f"fairness, {cells}{name}", f"beside {floods}", "alone", 2.0, kind="tails")
        for cells in ("4 cells, ", "")
        for name in ("100 ms of rest", "5 ms of rest", "5 ms of work")
        for floods in ("one flood", "two floods")
    ),
    Target("cluster-latency", "added by the cluster", "bare actor call", 1.3),
    Target("cluster-rates", "on the cluster, 64", "here, 64", 0.7, at_least=True),
    Target("start", "import toolcell", "python -I -c pass", 60 * MS, 30 * MS, "over"),
    Target("start", "from toolcell import Supervisor, tool", "python -I -c pass", 60 * MS, 30 * MS, "over"),
    Target("start", "supervisor start → first result", "", 250 * MS, 120 * MS, "median"),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run says of a target: "moonshot", "met", "missed", "disturbed" or why there is no value."""

    target: Target
    unit: str
    value: Spread | None
    word: str


def judge(figures: Iterable[Figure], disturbed: Mapping[str, str]) -> list[Verdict]:
    """A verdict on each target whose figure was taken. `disturbed` are the keys of figures that say nothing."""
    taken = {figure.key: figure for figure in figures}
    return [_verdict(target, taken[target.figure], disturbed) for target in TARGETS if target.figure in taken]


def _verdict(target: Target, figure: Figure, disturbed: Mapping[str, str]) -> Verdict:
    ours, other = figure.case(target.ours), figure.case(target.against)
    if ours is None or (target.against and other is None):
        return Verdict(target, figure.unit, None, figure.absent.get(target.against, "not measured in this run"))
    value = target.found(ours, other)
    if figure.key in disturbed:
        word = "disturbed"
    elif target.moonshot is not None and target.reaches(value.median, target.moonshot):
        word = "moonshot"
    else:
        word = "met" if target.reaches(value.median, target.must) else "missed"
    return Verdict(target, figure.unit, value, word)


HEADERS = ("ours", "against", "found", "p10–p90", "must", "moonshot", "verdict")


def verdicts(figures: Sequence[Figure], disturbed: Mapping[str, str]) -> str:
    """All verdicts, as a table."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for header in HEADERS:
        number = header not in ("ours", "against", "verdict")
        table.add_column(header, justify="right" if number else "left", no_wrap=number)
    for verdict in judge(figures, disturbed):
        table.add_row(*row(verdict))
    return text_of(table)


def row(verdict: Verdict) -> tuple[str, ...]:
    """A verdict as the cells of a row."""
    target = verdict.target
    against = {"faster": f"{target.against}, ÷ ours", "over": f"over {target.against}"}.get(
        target.kind, f"÷ {target.against}" if target.against else target.kind
    )
    bound = "≥" if target.at_least or target.kind == "faster" else "≤"

    def shown(value: float) -> str:
        if target.against and target.kind != "over":
            return short(value)
        return amount(value, "B" if verdict.unit == "B" else "s")

    must = f"{bound} {shown(target.must)}"
    moonshot = "" if target.moonshot is None else f"{bound} {shown(target.moonshot)}"
    name = f"{target.figure}: {target.ours}"
    if verdict.value is None:
        return name, against, "", "", must, moonshot, verdict.word
    value = verdict.value
    around = "" if target.kind in ("p99", "tails") else f"{shown(value.p10)}–{shown(value.p90)}"
    return name, against, shown(value.median), around, must, moonshot, verdict.word
