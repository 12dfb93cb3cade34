"""Cells that are made before anybody needs them: whole, but for the session that each will serve, and its paths.

Such a cell is locked down, has its tools, and a call process waits in it. When a session asks for one of its kind, the
zygote puts the session's paths in place, and the cell is told whose it is. Nothing of another session was ever in it.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

from toolcell_sandbox import binding
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.identity import Identity
from toolcell_sandbox.profile import CellProfile
from toolcell_sandbox.report import SandboxReport
from toolcell_sandbox.view import Bind, Found, View, find_system, plan, rest

from .cell import Cell
from .run import CellKey, CellSpec

UNFIT: Final = 64  # kinds of which it is known that they cannot be made ahead
KINDS: Final = 4  # one cell of each is kept: an agent's tools are of a few kinds, by what they are granted
_NOWHERE: Final = "/"  # where nothing can be written: a tool that notes its directory as it is loaded finds out
_PATHS: Final = ("readable", "writable")
_SAME: Final = [each.name for each in fields(CellProfile) if each.name not in (*_PATHS, "cwd")]


def kind_of(spec: CellSpec) -> CellKey:
    """What such a cell belongs to before it belongs to a session."""
    return replace(spec.key, session_id="", workspace=(0, 0, 0), protected="")


def unbound(spec: CellSpec) -> CellSpec:
    """What is the same for all sessions whose cells are like this one."""
    nobody = {"session_id": "", "agent_id": "", "workspace_root": _NOWHERE}
    return CellSpec(
        kind_of(spec),
        spec.profile.replace(cwd=_NOWHERE, **{name: _without_workspace(spec, name) for name in _PATHS}),
        spec.tools,
        _NOWHERE,
        session={**spec.session, **nobody},
        unbound=True,
    )


def _without_workspace(spec: CellSpec, name: str) -> tuple[str, ...]:
    paths: tuple[str, ...] = getattr(spec.profile, name)
    return tuple(path for path in paths if path != spec.cwd)


def is_possible(spec: CellSpec, identity: Identity, report: SandboxReport) -> bool:
    """Whether such a cell can be made ahead. Not where loading its tools runs what has not run outside: a cell that is
    unbound has no rules about files (`toolcell_sandbox.binding`)."""
    untrusted = any("directory" in tool for tool in spec.tools)
    return not (spec.key.kept_tool or untrusted) and binding.is_possible(spec.profile, identity, report)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What was there when a cell was made: it fits no session for which that is no longer so."""

    identity: Identity
    system: Found
    view: View
    environ: Mapping[str, str]

    @classmethod
    def of(cls, profile: CellProfile, identity: Identity) -> "Surroundings":
        """Raises SandboxError where the system's paths cannot be looked at."""
        system = find_system(profile, identity)
        return cls(identity, system, plan(profile, identity, (), system), profile.environment(os.environ))


class Reserve:
    """One cell of each of the kinds that were asked for last. `cells` are all that are alive, by id."""

    def __init__(self) -> None:
        self.cells: dict[int, Cell] = {}
        self._by_kind: dict[CellKey, tuple[Cell, Surroundings]] = {}
        self._wanted: dict[CellKey, CellSpec] = {}
        self._unfit: dict[CellKey, None] = {}

    def want(self, spec: CellSpec) -> None:
        """Another session may come that asks for a cell like this one."""
        kind = kind_of(spec)
        if kind in self._unfit:
            return
        self._wanted.pop(kind, None)
        self._wanted[kind] = spec
        if len(self._wanted) > KINDS:
            del self._wanted[next(iter(self._wanted))]

    @property
    def is_short(self) -> bool:
        """Whether there may be one to be made."""
        return bool(self._wanted)

    def wanted(self) -> Iterator[CellSpec]:
        """What is to be made, each once."""
        while self._wanted:
            kind = next(iter(self._wanted))
            spec = self._wanted.pop(kind)
            if kind not in self._by_kind:
                yield spec

    def add(self, cell: Cell, surroundings: Surroundings) -> None:
        """Have this one; one of a kind that nobody has asked for longer is ended."""
        if len(self._by_kind) >= KINDS:
            self.end_one()
        self.cells[cell.id] = cell
        self._by_kind[cell.spec.key] = cell, surroundings

    def take(self, spec: CellSpec) -> tuple[Cell, list[Bind]] | None:
        """A cell that fits, and what is to be bound in it, outermost first, to make it such a cell. It may be starting
        still: that is sooner than a new one."""
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
        """End the oldest, for there is no room for it."""
        for kind in list(self._by_kind)[:1]:
            self._by_kind.pop(kind)[0].retire()

    def remove(self, cell: Cell) -> bool:
        """It has died. Whether it was one of these. No other is made ahead of a kind that has to have a session."""
        if cell.unfit and (cell.spec.unbound or cell.binding is not None):
            self._wanted.pop(kind_of(cell.spec), None)
            self._unfit[kind_of(cell.spec)] = None
            if len(self._unfit) > UNFIT:
                del self._unfit[next(iter(self._unfit))]
        if self._by_kind.get(cell.spec.key, (None,))[0] is cell:
            del self._by_kind[cell.spec.key]
        return self.cells.pop(cell.id, None) is not None


def _lacking(profile: CellProfile, surroundings: Surroundings, spec: CellSpec) -> list[Bind] | None:
    """What a cell of this profile lacks, None where it cannot be made one."""
    if any(getattr(profile, name) != getattr(spec.profile, name) for name in _SAME):
        return None
    if any(getattr(profile, name) != _without_workspace(spec, name) for name in _PATHS):
        return None
    if spec.profile.environment(os.environ) != surroundings.environ or not surroundings.system.holds():
        return None
    try:
        whole = plan(spec.profile, surroundings.identity, spec.protected, surroundings.system)
    except (SandboxError, OSError):
        return None  # the cell that is made instead says so
    return rest(whole, surroundings.view.binds) if whole.links == surroundings.view.links else None
