"""A figure: everything that was measured against each other in one run, as a table and as JSON."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from string import ascii_uppercase
from typing import Any, Literal, Self, cast

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from .interleave import Measured, Ratio, Spread, ratio, spread

Unit = Literal["s", "B", "/s"]
_WIDTH = 160
_COMPARED = 3  # of ours, against each other row: more columns than that nobody reads
# The factor to a unit, and its name: the first that gives less than 1000 is used.
_SCALES: Mapping[Unit, Sequence[tuple[float, str]]] = {
    "s": ((1e6, "µs"), (1e3, "ms"), (1.0, "s")),
    "B": ((1.0, "B"), (1 / 1024, "KiB"), (1 / 1024**2, "MiB")),
    "/s": ((1.0, "/s"),),
}


@dataclass(frozen=True, slots=True)
class Curve:
    """How one thing depends on another: `points` are pairs of x and y, `role` is as of a case."""

    name: str
    role: str
    x: str
    y: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a budget, in order: where it happens, and how long it takes, in seconds."""

    name: str
    where: str
    taken: Spread


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured, ours first. Samples are in `unit`.

    `key` is its name in `targets.py` and in file names. `absent` are the peers that are not here, with the reason;
    `notes` are lines below the table.
    """

    key: str
    title: str
    measured: Sequence[Measured] = ()
    absent: Mapping[str, str] = field(default_factory=dict[str, str])
    unit: Unit = "s"
    curves: Sequence[Curve] = ()
    stages: Sequence[Stage] = ()
    notes: Sequence[str] = ()

    @property
    def ours(self) -> list[Measured]:
        return [case for case in self.measured if case.role == "ours"]

    def case(self, name: str) -> Measured | None:
        """The case of this name, if it was measured."""
        return next((case for case in self.measured if case.name == name), None)

    def to_json(self) -> dict[str, object]:
        """Medians and ratios for readers, and for programs the raw samples, block by block."""
        return {
            "key": self.key,
            "title": self.title,
            "unit": self.unit,
            "absent": dict(self.absent),
            "notes": list(self.notes),
            "curves": [asdict(curve) for curve in self.curves],
            "stages": [asdict(stage) for stage in self.stages],
            "cases": {
                case.name: {
                    "role": case.role,
                    "spread": {name: _rounded(value) for name, value in asdict(spread(case.samples)).items()},
                    "ratio_of_ours": {ours.name: asdict(ratio(ours, case)) for ours in self.ours if ours is not case},
                    "blocks": [[_rounded(sample) for sample in block] for block in case.blocks],
                }
                for case in self.measured
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The figure that was written with `to_json`."""
        return cls(
            key=data["key"],
            title=data["title"],
            measured=[Measured(name, case["role"], case["blocks"]) for name, case in data["cases"].items()],
            absent=data["absent"],
            unit=cast("Unit", data["unit"]),
            curves=[Curve(**{**curve, "points": [(x, y) for x, y in curve["points"]]}) for curve in data["curves"]],
            stages=[Stage(stage["name"], stage["where"], Spread(**stage["taken"])) for stage in data["stages"]],
            notes=data["notes"],
        )

    def __str__(self) -> str:
        """Rows: ours, by letter, floors, peers. The column `A ÷ row` has how many times as much A has as the row."""
        tables: list[Table] = []
        if self.measured:
            tables.append(self._ratios())
        tables += [_points([curve for curve in self.curves if curve.x == x]) for x in _in_order(self.curves)]
        if self.stages:
            tables.append(self._budget())
        absent = [f"peer    {name}: none, for {reason}" for name, reason in self.absent.items()]
        return "\n".join([self.title, *(text_of(table) for table in tables), *absent, *self.notes])

    def _ratios(self) -> Table:
        table = _table("", "case")
        ours = dict(zip(ascii_uppercase, self.ours, strict=False))
        others = len(self.ours) < len(self.measured)
        compared = list(ours.items())[: _COMPARED if others else 0]
        for header in ("median", "p10–p90", *(f"{letter} ÷ row" for letter, _case in compared)):
            table.add_column(header, justify="right", no_wrap=True)
        for letter, case in ours.items():
            table.add_row(letter, case.name, *self._amounts(case))
        for case in self.measured:
            if case.role != "ours":
                ratios = (ratio_text(ratio(each, case)) for _letter, each in compared)
                table.add_row(case.role, case.name, *self._amounts(case), *ratios)
        return table

    def _amounts(self, case: Measured) -> tuple[str, str]:
        """Median, and 10th to 90th percentile, in one unit each."""
        around = spread(case.samples)
        factor, unit = scale(around.p90, self.unit)
        return amount(around.median, self.unit), f"{short(around.p10 * factor)}–{short(around.p90 * factor)} {unit}"

    def _budget(self) -> Table:
        table = _table("stage", "where")
        for header in ("median", "p10–p90", "sum of medians"):
            table.add_column(header, justify="right", no_wrap=True)
        so_far = 0.0
        for stage in self.stages:
            so_far += stage.taken.median
            factor, unit = scale(stage.taken.p90, "s")
            around = f"{short(stage.taken.p10 * factor)}–{short(stage.taken.p90 * factor)} {unit}"
            table.add_row(stage.name, stage.where, amount(stage.taken.median, "s"), around, amount(so_far, "s"))
        return table


def _in_order(curves: Sequence[Curve]) -> list[str]:
    return list(dict.fromkeys(curve.x for curve in curves))


def _points(curves: Sequence[Curve]) -> Table:
    """Curves over one x: a row for each x, a column for each curve."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(curves[0].x, justify="right")
    for curve in curves:
        table.add_column(f"{curve.name}, {curve.y}", justify="right")
    for x in sorted({x for curve in curves for x, _y in curve.points}):
        found = [dict(curve.points).get(x) for curve in curves]
        table.add_row(f"{x:,g}", *("" if y is None else short(y) for y in found))
    return table


def _table(*headers: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for header in headers:
        table.add_column(header, no_wrap=True)
    return table


def text_of(table: Table) -> str:
    """The table as lines of text."""
    out = io.StringIO()
    Console(file=out, width=_WIDTH).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def scale(value: float, unit: Unit) -> tuple[float, str]:
    """The factor and the name of the unit in which a value has one to three digits before the point."""
    for factor, name in _SCALES[unit]:
        if abs(value) * factor < 1000:
            return factor, name
    return _SCALES[unit][-1]


def amount(value: float, unit: Unit) -> str:
    """A value with its unit."""
    factor, name = scale(value, unit)
    return f"{short(value * factor)} {name}"


def ratio_text(of: Ratio) -> str:
    """A ratio, and in brackets where the ratios of most rounds lie."""
    return f"{short(of.rounds.median)} ({short(of.rounds.p10)}–{short(of.rounds.p90)})"


def short(number: float) -> str:
    """Three digits: more would claim too much."""
    size = abs(number)
    return f"{number:.2f}" if size < 10 else f"{number:.1f}" if size < 100 else f"{number:,.0f}"


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
