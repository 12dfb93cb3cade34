"""Prewarmed cells: complete except for a session and the session's paths.

A prewarmed cell is locked down, has loaded its tools, and has a standby. When a session asks for a cell of its kind,
the zygote puts the session's paths in place, and the cell is told its session. It never held data of another session.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

from toolcell_sandbox import late_paths
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.identity import Identity
from toolcell_sandbox.profile import CellProfile
from toolcell_sandbox.report import SandboxReport
from toolcell_sandbox.view import Bind, Found, View, plan, rest

from .cell import Cell
from .run import CellKey, CellSpec

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

    def __init__(self) -> None:
        self.cells: dict[int, Cell] = {}
        self._by_kind: dict[CellKey, tuple[Cell, Surroundings]] = {}
        self._wanted: dict[CellKey, CellSpec] = {}
        self._unfit: dict[CellKey, None] = {}

    def want(self, spec: CellSpec) -> None:
        """Keep a cell of this kind in stock, because another session may ask for one."""
        kind = kind_of(spec)
        if kind in self._unfit:
            return
        self._wanted.pop(kind, None)
        self._wanted[kind] = spec
        if len(self._wanted) > KINDS:
            del self._wanted[next(iter(self._wanted))]

    @property
    def is_short(self) -> bool:
        """Whether a wanted kind may lack its cell."""
        return bool(self._wanted)

    def wanted(self) -> Iterator[CellSpec]:
        """The specs of the cells to make, each once."""
        while self._wanted:
            kind = next(iter(self._wanted))
            spec = self._wanted.pop(kind)
            if kind not in self._by_kind:
                yield spec

    def add(self, cell: Cell, surroundings: Surroundings) -> None:
        """Add this cell. A cell of a kind that is no longer wanted is ended."""
        if len(self._by_kind) >= KINDS:
            self.end_one()
        self.cells[cell.id] = cell
        self._by_kind[cell.spec.key] = cell, surroundings

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
