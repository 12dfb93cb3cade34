"""When to prewarm cells for the reserve: one at a time, a moment after the queue has become empty."""

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
SOON_S = 0.0003  # where no prewarmed cell was ready for the last session: the next may come as soon


class Demand(Protocol):
    """The pool, as it is now."""

    @property
    def is_calm(self) -> bool:
        """Whether a zygote is there and no call waits."""
        ...

    @property
    def all_cells(self) -> Sequence[Cell]:
        """Those of the reserve too."""
        ...

    @property
    def most_cells(self) -> int: ...


class Prewarmer:
    """Fills a reserve. While `enabled` is False, it makes none."""

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
        """Whether `soon` is to be called when the cell that starts has started, or is gone."""

    @property
    def is_pending(self) -> bool:
        """Whether a cell may be made in a moment."""
        return self._timer is not None

    def want(self, spec: CellSpec) -> None:
        """Another session may come that asks for a cell like this one."""
        if self.enabled:
            self.reserve.want(spec)

    def on_demand(self) -> None:
        """A session asks for a cell."""
        self._after_s = SOON_S

    def on_met(self) -> None:
        """A prewarmed cell was ready for it."""
        self._after_s = AFTER_S

    def soon(self) -> None:
        """Make one in a moment, if one is wanted."""
        self.waits_for_start = False
        if not self.enabled or not self.reserve.is_short:
            return
        if self._timer is not None:
            self._deadlines.cancel(self._timer)
        self._timer = self._deadlines.at(time.monotonic() + self._after_s, self._make_one)

    def stop(self) -> None:
        """Make no other, and end those that there are."""
        self.enabled = False
        for cell in list(self.reserve.cells.values()):
            cell.retire()

    def _make_one(self) -> None:
        """Make a cell like those that were asked for. Not where a call waits or a cell starts: we hear of its end."""
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
            surroundings = Surroundings.of(spec.profile, identity)
            planned = view.plan(like.profile, identity, (), surroundings.system)
            cell, request = self._maker.new_cell(spec)
        except CANNOT_MAKE:
            return  # whoever needs a cell hears why
        self.reserve.add(cell, replace(surroundings, identity=self._maker.identity_of("", cell.slot)))
        owners = sorted({bind.owner for bind in planned.binds if bind.owner})
        self._maker.ask_for(cell, request._replace(owners=[list(owner) for owner in owners]))
