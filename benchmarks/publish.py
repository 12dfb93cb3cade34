"""Writes the tables of a run into `RESULTS.md`, between the marks that name them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .machine import Machine
from .report import Figure, amount, short
from .targets import HEADERS, judge, row

RESULTS = Path(__file__).with_name("RESULTS.md")


def publish(run: Mapping[str, Any]) -> list[str]:
    """Put verdicts, budgets and machine of a run (pytest-benchmark's JSON) into the page; return the marks filled."""
    taken = [each["extra_info"] for each in run["benchmarks"]]
    figures = [Figure.from_json(each["figure"]) for each in taken]
    disturbed = {each["figure"]["key"]: each["beside"]["disturbed"] for each in taken if each["beside"]["disturbed"]}
    tables = {figure.key: _budget(figure, disturbed.get(figure.key, "")) for figure in figures if figure.stages}
    if verdicts := judge(figures, disturbed):  # else it is a part of the figures, none of which has a target
        tables["targets"] = _table(HEADERS, [row(verdict) for verdict in verdicts], 2)
        tables["machine"] = [f"{Machine(**taken[0]['machine'])}."]
    tables |= {
        f"{figure.key}-notes": [*figure.notes, *_disturbed(disturbed.get(figure.key, ""))]
        for figure in figures
        if figure.key.startswith("rollout")
    }
    text = RESULTS.read_text()
    filled: list[str] = []
    for mark, lines in tables.items():
        between = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
        escaped = "\n".join(lines).replace("\\", r"\\")
        text, count = between.subn(rf"\g<1>{escaped}\n\g<2>", text)
        filled += [mark] * count
    RESULTS.write_text(text)
    return filled


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: int) -> list[str]:
    """A table in Markdown, whose columns from number `right` on are numbers."""
    rule = ["---" if number < right else "--:" for number in range(len(headers))]
    return [f"| {' | '.join(cells)} |" for cells in (headers, rule, *rows)]


def _disturbed(why: str) -> list[str]:
    return [f"Disturbed: {why}."] if why else []


def _budget(figure: Figure, disturbed: str) -> list[str]:
    rows: list[Sequence[str]] = []
    so_far = 0.0
    for stage in figure.stages:
        so_far += stage.taken.median
        around = f"{short(stage.taken.p10 * 1e6)}–{short(stage.taken.p90 * 1e6)} µs"
        rows.append((stage.name, stage.where, amount(stage.taken.median, "s"), around, amount(so_far, "s")))
    table = _table(("stage", "where", "median", "p10–p90", "sum"), rows, 2)
    return [*table, "", *figure.notes, *_disturbed(disturbed)]
