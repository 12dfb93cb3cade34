"""When the process for a cell's next call is forked ahead: while a call lasts, many cells' together."""

import math
import time

from .cell import Cell
from .cell.cell import AHEAD_AFTER_S
from .deadlines import Deadline, Deadlines

APART_S = 0.001


class ForkingAhead:
    """Of one pool. `enabled` says whether cells here can keep a process that waits apart from one that works."""

    def __init__(self, deadlines: Deadlines) -> None:
        self.enabled = False
        self._deadlines = deadlines
        self._cells: set[Cell] = set()  # that have been given a call
        self._timer: Deadline | None = None

    def add(self, cell: Cell, started_at: float) -> None:
        """The cell was given a call then."""
        if self.enabled:
            self._cells.add(cell)
            if self._timer is None and cell.ahead_due < math.inf:
                self._timer = self._deadlines.at(started_at + AHEAD_AFTER_S, self._fork)

    def discard(self, cell: Cell) -> None:
        """The cell is gone."""
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
