"""A figure: everything that was measured against each other in one run, as a table and as JSON."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from string import ascii_uppercase

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from .interleave import Measured, Ratio, ratio, spread

_WIDTH = 128  # the widest table has 120


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured, ours first; `absent` are the peers that are not here, with the reason."""

    title: str
    measured: Sequence[Measured]
    absent: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def ours(self) -> list[Measured]:
        return [case for case in self.measured if case.role == "ours"]

    def to_json(self) -> dict[str, object]:
        """Medians and ratios, and the raw samples in microseconds, block by block."""
        return {
            "title": self.title,
            "absent": dict(self.absent),
            "cases": {
                case.name: {
                    "role": case.role,
                    "us": {name: round(value * 1e6, 2) for name, value in asdict(spread(case.samples)).items()},
                    "ratio_of_ours": {ours.name: asdict(ratio(ours, case)) for ours in self.ours if ours is not case},
                    "blocks_us": [[round(sample * 1e6, 2) for sample in block] for block in case.blocks],
                }
                for case in self.measured
            },
        }

    def __str__(self) -> str:
        """Rows: ours, by letter, floors, peers. The column `A ÷ row` has how many times as long A takes as the row."""
        table = Table(title=self.title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for header in ("", "case"):
            table.add_column(header, no_wrap=True)
        ours = dict(zip(ascii_uppercase, self.ours, strict=False))
        for header in ("median", "p10–p90", *(f"{letter} ÷ row" for letter in ours)):
            table.add_column(header, justify="right", no_wrap=True)
        for letter, case in ours.items():
            table.add_row(letter, case.name, *_times(case))
        for case in self.measured:
            if case.role != "ours":
                table.add_row(
                    case.role, case.name, *_times(case), *(_ratio_text(ratio(each, case)) for each in self.ours)
                )
        for name, reason in self.absent.items():
            table.add_row("peer", name, "none", reason)
        out = io.StringIO()
        Console(file=out, width=_WIDTH).print(table)
        return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _times(case: Measured) -> tuple[str, str]:
    """Median, and 10th to 90th percentile, in one unit each."""
    around = spread(case.samples)
    factor, unit = (1e6, "µs") if around.p90 < 1e-3 else (1e3, "ms")
    median_factor, median_unit = (1e6, "µs") if around.median < 1e-3 else (1e3, "ms")
    return (
        f"{_short(around.median * median_factor)} {median_unit}",
        f"{_short(around.p10 * factor)}–{_short(around.p90 * factor)} {unit}",
    )


def _ratio_text(of: Ratio) -> str:
    return f"{_short(of.rounds.median)} ({_short(of.rounds.p10)}–{_short(of.rounds.p90)})"


def _short(number: float) -> str:
    """Three digits: more would claim too much."""
    return f"{number:.2f}" if number < 10 else f"{number:.1f}" if number < 100 else f"{number:.0f}"
