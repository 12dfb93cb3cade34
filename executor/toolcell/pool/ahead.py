"""Fork each cell's next call process ahead, during a call that lasts. One timer serves many cells."""

import math
import time

from .cell import Cell
from .cell.cell import AHEAD_AFTER_S
from .deadlines import Deadline, Deadlines

APART_S = 0.001


class ForkingAhead:
    """Forks ahead for one pool. `enabled` says whether cells here can separate a waiting process from a working one."""

    def __init__(self, deadlines: Deadlines) -> None:
        self.enabled = False
        self._deadlines = deadlines
        self._cells: set[Cell] = set()  # cells with a new call
        self._timer: Deadline | None = None

    def add(self, cell: Cell, started_at: float) -> None:
        """Note that the cell was given a call at `started_at`."""
        if self.enabled and cell.ahead_due < math.inf:
            self._cells.add(cell)
            if self._timer is None:
                self._timer = self._deadlines.at(started_at + AHEAD_AFTER_S, self._fork)

    def discard(self, cell: Cell) -> None:
        """Forget a cell that is gone."""
        self._cells.discard(cell)

    def _fork(self) -> None:
        now = time.monotonic()
        soonest = math.inf
        for cell in list(self._cells):
            due = cell.ahead_due
            if due <= now:
                cell.fork_ahead()
            elif due < math.inf:
                soonest = min(soonest, due)
                continue
            self._cells.discard(cell)
        self._timer = self._deadlines.at(max(soonest, now + APART_S), self._fork) if soonest < math.inf else None
