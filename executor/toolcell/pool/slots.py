"""Slots: the uid and the cgroup of each cell on this host, and when another cell may reuse them."""

import itertools
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress

from toolcell.workplaces.record import RunRecord
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.identity import unused_slots
from toolcell_sandbox.limits import Limits
from toolcell_sandbox.mechanisms.cgroup_tree import CgroupTree
from toolcell_sandbox.mechanisms.cgroups import Cgroup

from .cell import Cell
from .deadlines import Deadlines

_log = logging.getLogger("toolcell.pool")
VACATE_AGAIN_S = 0.005  # how often the cgroup of a dead cell is checked until it is empty
VACATE_S = 10.0  # a process that survives SIGKILL for so long hangs in the kernel
_now = time.monotonic
_numbers = itertools.count(1)  # of the cgroups of this process: two supervisors of one process may draw the same range


class Slots:
    """The slots of one supervisor. If `tree` is None, cells have no cgroup.

    `vacating` are dead cells whose cgroups are not empty yet. `on_vacated` is called when one of them is free again.
    """

    def __init__(self, deadlines: Deadlines, record: RunRecord, on_vacated: Callable[[], None]) -> None:
        self.tree: CgroupTree | None = None
        self.vacating: set[Cell] = set()
        self.free_cgroups: list[Cgroup] = []
        self._deadlines = deadlines
        self._record = record
        self._on_vacated = on_vacated
        # The uids of cells are a range of this supervisor's own: RLIMIT_NPROC counts the processes of a uid.
        self._first = unused_slots()
        self._free: list[int] = []
        self.last = self._first

    def take(self, limits: Limits) -> tuple[int, Cgroup | None]:
        """The slot of a new cell, and its open cgroup. Raises OSError or SandboxError."""
        cgroup = self._take_cgroup(limits)
        if self._free:
            slot = self._free.pop()
        else:
            self.last += 1
            slot = self.last
        try:
            if cgroup is not None:
                cgroup.open()
        except BaseException:
            self.give_back(slot, cgroup)
            raise
        return slot, cgroup

    def _take_cgroup(self, limits: Limits) -> Cgroup | None:
        if self.tree is None:
            return None
        while self.free_cgroups:
            cgroup = self.free_cgroups.pop()
            if not cgroup.exists():  # another program has removed it
                with suppress(SandboxError):  # or it could not be looked at
                    cgroup.remove(timeout_s=0.0)
                continue
            try:
                cgroup.set_limits(limits)
                if cgroup.can_weigh:
                    cgroup.weigh(1)
            except BaseException:
                self.free_cgroups.append(cgroup)
                raise
            return cgroup
        # The name has the first uid of the range: a killed supervisor of the same pid may have left its cgroups.
        group = self.tree.create(f"{self._first:x}-{next(_numbers)}", limits)
        self._record.cgroup(group.paths)
        return group

    def give_back(self, slot: int, cgroup: Cgroup | None) -> None:
        """Let another cell have the slot and the cgroup."""
        self._free.append(slot)
        if cgroup is not None:
            self.free_cgroups.append(cgroup)

    def vacate(self, cell: Cell) -> None:
        """Free a dead cell's slot and cgroup for another cell, once the cgroup is empty.

        The kernel kills a pid namespace with its init, so the cgroup is normally empty. This check matters if that
        fails, or if a cell was allowed to have no namespace.
        """
        self._vacate(cell, _now() + VACATE_S)

    def _vacate(self, cell: Cell, until: float) -> None:
        left = _left_in_group(cell)
        if left and cell not in self.vacating:
            self.vacating.add(cell)
            cell.calls.report(f"processes outlived their cell and were killed by its cgroup: {len(left)}")
        if left and _now() < until:
            self._deadlines.at(_now() + VACATE_AGAIN_S, lambda: self._vacate(cell, until))
            return
        self.vacating.discard(cell)
        if left:
            _log.error("%r is given up with its cgroup: %d processes in it do not die", cell, len(left))
            if cell.cgroup is not None:
                cell.cgroup.close()
        else:
            self.give_back(cell.slot, cell.cgroup)
        self._on_vacated()

    def remove(self, cells: Iterable[Cell]) -> None:
        """Remove every cgroup, including those of these cells."""
        living = [*cells, *self.vacating]
        self.free_cgroups += [cell.cgroup for cell in living if cell.cgroup is not None]
        with ExitStack() as removing:  # all of them, even if one fails
            for cgroup in self.free_cgroups:
                removing.callback(cgroup.remove)
            self.free_cgroups.clear()


def _left_in_group(cell: Cell) -> list[int]:
    """Kill and return the processes that are left in a dead cell's cgroup. If the cgroup cannot be read, for example
    because no descriptor is left, remove it: the kernel removes only an empty one.
    """
    cgroup = cell.cgroup
    if cgroup is None:
        return []
    try:
        return cgroup.kill_now()
    except (OSError, SandboxError) as unreadable:
        try:
            cgroup.remove(timeout_s=0.0)
        except SandboxError:
            _log.warning("the cgroup of %r cannot be read: %s", cell, unreadable)
            return [0]  # an unknown number
        cell.cgroup = None
        return []
