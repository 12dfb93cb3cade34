"""Make cells: give each a slot, plan what it sees, and ask a zygote for it.

A zygote forks all cells, so a byte that it has read for one session could be read in the memory of another session's
cell. It gets figures and descriptors. The environment and all paths are in a memory file that only the cell reads.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, cast

from toolcell.wire.frames import Field, Unpackable
from toolcell.wire.messages import Failed, MakeCell
from toolcell_sandbox import prespawn, view
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.identity import Identity
from toolcell_sandbox.mechanisms.cgroups import Cgroup
from toolcell_sandbox.network import HostNetwork
from toolcell_sandbox.order import Particulars
from toolcell_sandbox.profile import CellProfile
from toolcell_sandbox.report import SandboxReport
from toolcell_sandbox.view import Found, View

from .cell import Cell, CellOwner
from .deadlines import Deadlines
from .reactor import Reactor
from .run import CellSpec
from .slots import Slots
from .zygote import cure_of

CANNOT_MAKE = (OSError, SandboxError, Unpackable)
"""Errors if no descriptor is left, the cgroups are gone, or the profile has values that cannot be sent."""


class CellRequest(NamedTuple):
    """The message to a zygote for a cell, and what only the cell reads."""

    message: MakeCell
    particulars: Particulars


class Zygotes(Protocol):
    """The fleet, as far as making a cell needs it."""

    @property
    def report(self) -> SandboxReport: ...

    def make(self, cell: Cell, request: CellRequest) -> None:
        """Ask for a cell. Raises Unpackable or OSError if the request cannot be sent."""
        ...


FOUND = 8
"""The most profiles whose resolved system paths are remembered."""


class Maker:
    """Makes the cells of one pool. Cells are numbered from 1."""

    def __init__(
        self,
        pool: CellOwner[Cell],
        reactor: Reactor,
        deadlines: Deadlines,
        slots: Slots,
        zygotes: Zygotes,
        *,
        standby: bool,
    ) -> None:
        self.zygotes = zygotes
        self.last_id = 0
        self._pool = pool
        self._reactor = reactor
        self._deadlines = deadlines
        self._slots = slots
        self._standby = standby
        self._found: dict[tuple[object, ...], Found] = {}  # resolved system paths
        self._unmapped: set[str] = set()  # sessions whose workspace cannot be mounted with mapped ids

    def has_unmapped(self, session_id: str) -> bool:
        """Whether the session's cells are made in user namespaces instead of with id-mapped mounts."""
        return session_id in self._unmapped

    def add_unmapped(self, session_id: str) -> None:
        """From now on, make the session's cells in user namespaces."""
        self._unmapped.add(session_id)

    def forget(self, session_id: str) -> None:
        """Forget a session that has ended."""
        self._unmapped.discard(session_id)

    def identity_of(self, session_id: str, slot: int) -> Identity:
        """The user and group ids of the session's cell in this slot."""
        return Identity.for_slot(slot, "userns-root" if self.has_unmapped(session_id) else self.zygotes.report.identity)

    def new_cell(self, spec: CellSpec, owners: Iterable[tuple[int, int]] = ()) -> tuple[Cell, CellRequest]:
        """A new cell, and the request to a zygote for it. `owners` are the likely owners of the paths that it gets
        later. Raises `CANNOT_MAKE`."""
        self.last_id += 1
        slot, cgroup = self._slots.take(spec.profile.limits)
        try:
            request = self._request_for(spec, slot, cgroup, owners)
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
            cell.in_userns = self.has_unmapped(spec.key.session_id)
        except BaseException:
            self._slots.give_back(slot, cgroup)
            raise
        return cell, request

    def ask_for(self, cell: Cell, request: CellRequest) -> None:
        """Have a zygote make the cell. If the request fails, the cell is told in the next turn of the loop."""
        try:
            self.zygotes.make(cell, request)
        except (OSError, Unpackable) as error:
            failure = not_made(error)
            self._reactor.soon(lambda: cell.on_not_spawned(failure))  # not now: the pump is running

    def _request_for(
        self, spec: CellSpec, slot: int, cgroup: Cgroup | None, owners: Iterable[tuple[int, int]]
    ) -> CellRequest:
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
        return CellRequest(message, Particulars(spec.profile.to_wire(), whole.to_wire()))

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
