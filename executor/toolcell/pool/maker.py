"""Make cells: give each a slot, plan what it sees, and ask a zygote for it. A slot is a uid and a cgroup.

A zygote forks all cells, so a byte that it has read for one session could be read in the memory of another session's
cell. It gets figures and descriptors. The environment and all paths are in a memory file that only the cell reads.
"""

import itertools
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import cast

from toolcell.wire.frames import Field, Unpackable
from toolcell.wire.messages import Failed, MakeCell
from toolcell.workplaces.record import RunRecord
from toolcell_sandbox import prespawn, view
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.identity import Identity, unused_slots
from toolcell_sandbox.limits import Limits
from toolcell_sandbox.mechanisms.cgroup_tree import CgroupTree
from toolcell_sandbox.mechanisms.cgroups import Cgroup
from toolcell_sandbox.network import HostNetwork
from toolcell_sandbox.order import Particulars
from toolcell_sandbox.profile import CellProfile
from toolcell_sandbox.view import Found, View

from .cell import Cell, CellOwner
from .deadlines import Deadlines
from .fleet import Fleet
from .reactor import Reactor
from .run import CellSpec
from .zygote import cure_of

_log = logging.getLogger("toolcell.pool")
VACATE_AGAIN_S = 0.005  # how often the cgroup of a dead cell is checked until it is empty
VACATE_S = 10.0  # a process that survives SIGKILL for so long hangs in the kernel
_numbers = itertools.count(1)  # of the cgroups of this process: two supervisors of one process may draw the same range
CANNOT_MAKE = (OSError, SandboxError, Unpackable)
"""Errors if no descriptor is left, the cgroups are gone, or the profile has values that cannot be sent."""


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
        self._vacate(cell, time.monotonic() + VACATE_S)

    def _vacate(self, cell: Cell, until: float) -> None:
        left = _left_in_group(cell)
        if left and cell not in self.vacating:
            self.vacating.add(cell)
            cell.calls.report(f"processes outlived their cell and were killed by its cgroup: {len(left)}")
        if left and time.monotonic() < until:
            self._deadlines.at(time.monotonic() + VACATE_AGAIN_S, lambda: self._vacate(cell, until))
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


FOUND = 8
"""The most profiles whose resolved system paths are remembered."""


class Maker:
    """Makes the cells of one pool. Cells are numbered from 1."""

    def __init__(
        self,
        pool: CellOwner,
        reactor: Reactor,
        deadlines: Deadlines,
        slots: Slots,
        fleet: Fleet,
        *,
        standby: bool,
    ) -> None:
        self.fleet = fleet
        self.unmapped: set[str] = set()
        """Sessions whose workspace cannot be mounted with mapped ids: their cells are made in user namespaces."""
        self.last_id = 0
        self._pool = pool
        self._reactor = reactor
        self._deadlines = deadlines
        self.slots = slots
        self._standby = standby
        self._found: dict[tuple[object, ...], Found] = {}  # resolved system paths

    def identity_of(self, session_id: str, slot: int) -> Identity:
        """The user and group ids of the session's cell in this slot."""
        return Identity.for_slot(slot, "userns-root" if session_id in self.unmapped else self.fleet.report.identity)

    def make(self, spec: CellSpec, owners: Iterable[tuple[int, int]] = ()) -> Cell:
        """Make a cell, and ask a zygote for it. `owners` are the likely owners of the paths that it gets later. If the
        request cannot be sent, the cell is told in the next turn of the loop. Raises `CANNOT_MAKE`."""
        self.last_id += 1
        slot, cgroup = self.slots.take(spec.profile.limits)
        try:
            message, particulars = self._request_for(spec, slot, cgroup, owners)
            cell = Cell(
                self.last_id,
                slot,
                spec,
                self._reactor,
                self._deadlines,
                self._pool,
                cgroup=cgroup,
                standby=self._standby,
            )
            cell.in_userns = spec.key.session_id in self.unmapped
        except BaseException:
            self.slots.give_back(slot, cgroup)
            raise
        try:
            self.fleet.make(cell, message, particulars)
        except (OSError, Unpackable) as error:
            failure = not_made(error)
            self._reactor.soon(lambda: cell.on_not_spawned(failure))  # not now: the pump is running
        return cell

    def _request_for(
        self, spec: CellSpec, slot: int, cgroup: Cgroup | None, owners: Iterable[tuple[int, int]]
    ) -> tuple[MakeCell, Particulars]:
        """The message to a zygote for a cell, and what only the cell reads."""
        preload = preload_of(spec.tools)
        identity = self.identity_of(spec.key.session_id, slot)
        whole = view.plan(spec.profile, identity, spec.protected, self.system_of(spec.profile, identity))
        message = MakeCell(
            self.last_id,
            figures=cast("dict[str, Field]", spec.profile.figures().to_wire(short=True)),
            identity=cast("list[Field]", identity.to_wire()),
            cgroups=[*cgroup.paths] if cgroup else [],
            preload=None if preload is None else [*preload],
            fits_prespawned=prespawn.fits(whole, self._mounted_ahead(identity)),
            unbound=spec.unbound,
            owners=[[*owner] for owner in {*view.owners(whole), *owners}],
        )
        return message, Particulars(spec.profile.to_wire(), whole.to_wire())

    def _mounted_ahead(self, identity: Identity) -> View:
        profile = CellProfile()
        return prespawn.mounted_ahead(view.plan(profile, identity, (), self.system_of(profile, identity)))

    def system_of(self, profile: CellProfile, identity: Identity) -> Found:
        """The resolved system paths of a profile. Raises SandboxError."""
        key = (profile.system, isinstance(profile.reach, HostNetwork), identity.mode)
        found = self._found.pop(key, None)
        if found is None or not found.holds():
            found = view.find_system(profile, identity)
        self._found[key] = found  # the last used one last
        if len(self._found) > FOUND:
            del self._found[next(iter(self._found))]
        return found


def preload_of(tools: Iterable[Mapping[str, object]]) -> list[str] | None:
    """The libraries that a zygote preloads for these tools, or None, all that it knows, if a tool does not say."""
    names = [tool.get("preload") for tool in tools]
    if None in names:
        return None
    return sorted({name for each in cast("list[Sequence[str]]", names) for name in each})


def not_made(error: Exception) -> Failed:
    """The failure that a call gets for an error in `CANNOT_MAKE`."""
    if isinstance(error, SandboxError) and error.step == view.PLAN:
        return Failed(error.step, str(error), error.mechanism, error.cure)
    if isinstance(error, Unpackable):
        cure = "Take what is not UTF-8, or is large, out of the profile's environment and paths; make tools smaller."
        return Failed("send", f"No cell could be made: {error}. {cure}", "", cure)
    number = (error.errno if isinstance(error, (OSError, SandboxError)) else 0) or 0
    cure = cure_of(error) or getattr(error, "cure", "") or "Try again; see the supervisor's log."
    what = os.strerror(number) if isinstance(error, OSError) and number else str(error).rstrip(".")
    return Failed("spawn", f"No cell could be made: {what}. {cure}", getattr(error, "mechanism", ""), cure)
