"""Prewarmed cells: complete except for a session and the session's paths.

A prewarmed cell is locked down, has loaded its tools, and has a standby. When a session asks for a cell of its kind,
the zygote puts the session's paths in place, and the cell is told its session. It never held data of another session.

The reserve keeps one cell of each kind that sessions have asked for. It makes one at a time, a moment after the queue
has become empty: cells for calls that wait come first.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

from toolcell_sandbox import late_paths, view
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.identity import Identity
from toolcell_sandbox.profile import CellProfile
from toolcell_sandbox.report import SandboxReport
from toolcell_sandbox.view import Bind, Found, View, plan, rest

from .cell import Cell
from .deadlines import Deadline, Deadlines
from .maker import CANNOT_MAKE, Maker
from .run import CellKey, CellSpec

AFTER_S = 0.003  # most calls are over by then
SOON_S = 0.0003  # after a session that found no prewarmed cell: others may follow at once
UNFIT: Final = 64  # remembered kinds that cannot be prewarmed
KINDS: Final = 4  # one cell of each kind is kept: an agent's tools need only a few sets of grants
_NOWHERE: Final = "/"  # nothing can be written there, so a tool that stores its directory at import fails visibly
_PATHS: Final = ("readable", "writable")
_SAME: Final = [each.name for each in fields(CellProfile) if each.name not in (*_PATHS, "cwd")]


def kind_of(spec: CellSpec) -> CellKey:
    """The key of a prewarmed cell before it has a session."""
    return replace(spec.key, session_id="", workspace=(0, 0, 0), protected="")


def unbound(spec: CellSpec) -> CellSpec:
    """The part of a spec that all sessions with cells of this kind share."""
    nobody = dict.fromkeys(("session_id", "agent_id", "user_id", "context"), "")
    return CellSpec(
        kind_of(spec),
        spec.profile.replace(cwd=_NOWHERE, **{name: _without_workspace(spec, name) for name in _PATHS}),
        spec.tools,
        _NOWHERE,
        session={**spec.session, **nobody, "ancestors": [], "workspace_root": _NOWHERE},
        unbound=True,
    )


def _without_workspace(spec: CellSpec, name: str) -> tuple[str, ...]:
    paths: tuple[str, ...] = getattr(spec.profile, name)
    return tuple(path for path in paths if path != spec.cwd)


def is_possible(spec: CellSpec, identity: Identity, report: SandboxReport) -> bool:
    """Whether such a cell can be prewarmed. It cannot if loading its tools runs code that has not run outside cells,
    because an unbound cell has no rules about files (`toolcell_sandbox.late_paths`)."""
    untrusted = any("directory" in tool for tool in spec.tools)
    return not (spec.key.kept_tool or untrusted) and late_paths.is_possible(spec.profile, identity, report)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The state of the host's paths when a cell was made. The cell fits only sessions for which it is unchanged."""

    identity: Identity
    system: Found
    view: View
    environ: Mapping[str, str]

    @classmethod
    def of(cls, profile: CellProfile, identity: Identity, system: Found) -> "Surroundings":
        """The present surroundings of a profile, whose resolved system paths are `system`. Raises SandboxError."""
        return cls(identity, system, plan(profile, identity, (), system), profile.environment(os.environ))


class Reserve:
    """One cell of each of the last requested kinds. `cells` are all that are alive, by id."""

    def __init__(
        self,
        maker: Maker,
        deadlines: Deadlines,
        others: Mapping[int, Cell],
        most_cells: int,
        is_calm: Callable[[], bool],
        *,
        enabled: bool,
    ) -> None:
        """`others` are the cells of sessions. `most_cells` bounds all cells. `is_calm` says that no call waits."""
        self.cells: dict[int, Cell] = {}
        self.enabled = enabled
        self.waits_for_start = False
        """Whether `soon` must be called when the starting cell has started or is gone."""
        self._maker = maker
        self._deadlines = deadlines
        self._others = others
        self._most_cells = most_cells
        self._is_calm = is_calm
        self._by_kind: dict[CellKey, tuple[Cell, Surroundings]] = {}
        self._wanted: dict[CellKey, CellSpec] = {}
        self._unfit: dict[CellKey, None] = {}
        self._timer: Deadline | None = None
        self._after_s = AFTER_S

    # -- when a cell is made ------------------------------------------------------------------------------------------

    def want(self, spec: CellSpec) -> None:
        """Keep a cell of this kind, because another session may ask for one."""
        kind = kind_of(spec)
        if not self.enabled or kind in self._unfit:
            return
        self._wanted.pop(kind, None)
        self._wanted[kind] = spec
        if len(self._wanted) > KINDS:
            del self._wanted[next(iter(self._wanted))]

    def on_demand(self) -> None:
        """Note that a session asks for a cell."""
        self._after_s = SOON_S

    def on_met(self) -> None:
        """Note that a prewarmed cell was ready for the session."""
        self._after_s = AFTER_S

    def soon(self) -> None:
        """Make a cell in a moment, if one is wanted."""
        self.waits_for_start = False
        if not self.enabled or not self._wanted:
            return
        if self._timer is not None:
            self._deadlines.cancel(self._timer)
        self._timer = self._deadlines.at(time.monotonic() + self._after_s, self._make_one)

    def stop(self) -> None:
        """Make no more cells, and end the existing ones."""
        self.enabled = False
        for cell in list(self.cells.values()):
            cell.retire()

    def _make_one(self) -> None:
        """Make a cell of a wanted kind, unless a call waits or a cell starts. Then the pool calls `soon` later."""
        self._timer = None
        if not self.enabled or not self._is_calm():
            return
        cells = [*self._others.values(), *self.cells.values()]
        if any(cell.starting for cell in cells):
            self.waits_for_start = True
            return
        while self._wanted:
            kind = next(iter(self._wanted))
            spec = self._wanted.pop(kind)
            if kind not in self._by_kind:
                if len(cells) + 1 < self._most_cells:
                    self._make(spec)
                break
        self.soon()

    def _make(self, like: CellSpec) -> None:
        maker = self._maker
        identity = maker.identity_of(like.key.session_id, maker.slots.last)
        if not is_possible(like, identity, maker.fleet.report):
            return
        spec = unbound(like)
        try:
            surroundings = Surroundings.of(spec.profile, identity, maker.system_of(spec.profile, identity))
            planned = view.plan(like.profile, identity, (), surroundings.system)
            cell = maker.make(spec, view.owners(planned))
        except CANNOT_MAKE:
            return  # a call that needs such a cell gets the error
        if len(self._by_kind) >= KINDS:
            self.end_one()
        self.cells[cell.id] = cell
        self._by_kind[cell.spec.key] = cell, replace(surroundings, identity=maker.identity_of("", cell.slot))

    # -- who gets it --------------------------------------------------------------------------------------------------

    def take(self, spec: CellSpec) -> tuple[Cell, list[Bind]] | None:
        """Take out a cell that fits, with the paths to bind in it, outermost first. The cell may still be starting,
        which is faster than a new one."""
        cell, surroundings = self._by_kind.get(kind_of(spec), (None, None))
        if cell is None or surroundings is None or cell.doomed:
            return None
        del self._by_kind[cell.spec.key]
        lacking = _lacking(cell.spec.profile, surroundings, spec)
        if lacking is None:
            cell.retire()
            return None
        return self.cells.pop(cell.id), lacking

    def end_one(self) -> None:
        """End the oldest cell to make room."""
        for kind in list(self._by_kind)[:1]:
            self._by_kind.pop(kind)[0].retire()

    def remove(self, cell: Cell) -> bool:
        """Remove a dead cell, and return whether it was in the reserve. If its tools could not be loaded without a
        session, no cell of its kind is prewarmed any more."""
        if cell.unfit and (cell.spec.unbound or cell.binding is not None):
            self._wanted.pop(kind_of(cell.spec), None)
            self._unfit[kind_of(cell.spec)] = None
            if len(self._unfit) > UNFIT:
                del self._unfit[next(iter(self._unfit))]
        if self._by_kind.get(cell.spec.key, (None,))[0] is cell:
            del self._by_kind[cell.spec.key]
        return self.cells.pop(cell.id, None) is not None


def _lacking(profile: CellProfile, surroundings: Surroundings, spec: CellSpec) -> list[Bind] | None:
    """The paths that a prewarmed cell lacks for this spec, or None if it cannot serve it."""
    if any(getattr(profile, name) != getattr(spec.profile, name) for name in _SAME):
        return None
    if any(getattr(profile, name) != _without_workspace(spec, name) for name in _PATHS):
        return None
    if spec.profile.environment(os.environ) != surroundings.environ or not surroundings.system.holds():
        return None
    try:
        whole = plan(spec.profile, surroundings.identity, spec.protected, surroundings.system)
    except (SandboxError, OSError):
        return None  # the cell that is made instead reports the error
    return rest(whole, surroundings.view.binds) if whole.links == surroundings.view.links else None
