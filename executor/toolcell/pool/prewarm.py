"""Decide when to prewarm cells for the reserve: one at a time, a moment after the queue has become empty."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from toolcell_sandbox import view

from . import reserve
from .cell import Cell
from .deadlines import Deadline, Deadlines
from .maker import CANNOT_MAKE, Maker
from .reserve import Reserve, Surroundings
from .run import CellSpec
from .slots import Slots

AFTER_S = 0.003  # most calls are over by then
SOON_S = 0.0003  # after a session that found no prewarmed cell: others may follow at once


class Demand(Protocol):
    """The pool's present demand for cells."""

    @property
    def is_calm(self) -> bool:
        """Whether there is a zygote and no call waits."""
        ...

    @property
    def all_cells(self) -> Sequence[Cell]:
        """All cells, those of the reserve included."""
        ...

    @property
    def most_cells(self) -> int: ...


class Prewarmer:
    """Fills a reserve with prewarmed cells, while `enabled` is True."""

    def __init__(self, demand: Demand, maker: Maker, slots: Slots, deadlines: Deadlines, *, enabled: bool) -> None:
        self.reserve = Reserve()
        self.enabled = enabled
        self._demand = demand
        self._maker = maker
        self._slots = slots
        self._deadlines = deadlines
        self._timer: Deadline | None = None
        self._after_s = AFTER_S
        self.waits_for_start = False
        """Whether `soon` must be called when the starting cell has started or is gone."""

    @property
    def is_pending(self) -> bool:
        """Whether a timer will make a cell in a moment."""
        return self._timer is not None

    def want(self, spec: CellSpec) -> None:
        """Keep a cell of this kind in the reserve, because another session may ask for one."""
        if self.enabled:
            self.reserve.want(spec)

    def on_demand(self) -> None:
        """Note that a session asks for a cell."""
        self._after_s = SOON_S

    def on_met(self) -> None:
        """Note that a prewarmed cell was ready for the session."""
        self._after_s = AFTER_S

    def soon(self) -> None:
        """Make a cell in a moment, if one is wanted."""
        self.waits_for_start = False
        if not self.enabled or not self.reserve.is_short:
            return
        if self._timer is not None:
            self._deadlines.cancel(self._timer)
        self._timer = self._deadlines.at(time.monotonic() + self._after_s, self._make_one)

    def stop(self) -> None:
        """Make no more cells, and end the existing ones."""
        self.enabled = False
        for cell in list(self.reserve.cells.values()):
            cell.retire()

    def _make_one(self) -> None:
        """Make a cell of a wanted kind, unless a call waits or a cell starts. Then the pool calls `soon` later."""
        self._timer = None
        if not self.enabled or not self._demand.is_calm:
            return
        cells = self._demand.all_cells
        if any(cell.starting for cell in cells):
            self.waits_for_start = True
            return
        spec = next(self.reserve.wanted(), None)
        if spec is not None and len(cells) + 1 < self._demand.most_cells:
            self._make(spec)
        self.soon()

    def _make(self, like: CellSpec) -> None:
        identity = self._maker.identity_of(like.key.session_id, self._slots.last)
        if not reserve.is_possible(like, identity, self._maker.zygotes.report):
            return
        spec = reserve.unbound(like)
        try:
            surroundings = Surroundings.of(spec.profile, identity, self._maker.system_of(spec.profile, identity))
            planned = view.plan(like.profile, identity, (), surroundings.system)
            cell, request = self._maker.new_cell(spec, view.owners(planned))
        except CANNOT_MAKE:
            return  # a call that needs such a cell gets the error
        self.reserve.add(cell, replace(surroundings, identity=self._maker.identity_of("", cell.slot)))
        self._maker.ask_for(cell, request)
