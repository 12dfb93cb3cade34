"""Forking ahead: each cell whose call lasts has its turn, however many there are."""

import math
import time
from typing import cast

from toolcell.pool.cell import Cell, ForkingAhead
from toolcell.pool.cell.cell import AHEAD_AFTER_S
from toolcell.pool.deadlines import Deadlines


class Lasting:
    """A cell whose call lasts."""

    def __init__(self, due: float) -> None:
        self.ahead_due = due
        self.forks = 0

    def fork_ahead(self) -> None:
        self.forks += 1
        self.ahead_due = math.inf


def test_of_several_cells_whose_calls_last_each_is_told_when_it_is_due() -> None:
    deadlines = Deadlines(lambda when: None)
    ahead = ForkingAhead(deadlines)
    ahead.enabled = True
    now = time.monotonic()
    cells = [Lasting(now + after) for after in (0.0, 0.02, 0.04)]
    for cell in cells:
        ahead.add(cast("Cell", cell), now)
    while any(cell.forks == 0 for cell in cells):
        time.sleep(0.005)
        for action in deadlines.pop_due(time.monotonic()):
            action()
    assert [cell.forks for cell in cells] == [1, 1, 1]


def test_a_call_that_has_ended_by_then_has_nothing_forked() -> None:
    deadlines = Deadlines(lambda when: None)
    ahead = ForkingAhead(deadlines)
    ahead.enabled = True
    cell = Lasting(time.monotonic())
    ahead.add(cast("Cell", cell), time.monotonic())
    cell.ahead_due = math.inf
    time.sleep(2 * AHEAD_AFTER_S)
    due = list(deadlines.pop_due(time.monotonic()))
    for action in due:
        action()
    assert len(due) == 1 and cell.forks == 0
    time.sleep(2 * AHEAD_AFTER_S)
    assert list(deadlines.pop_due(time.monotonic())) == []
