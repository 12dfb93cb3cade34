"""Which call runs where: a pure decision over what there is. It does nothing; the pool carries it out.

The rules, in order, for each waiting call, oldest first:

1. A call that must not overlap with another (`exclusive`) waits until that is over, and audited where it is watched.
2. A free cell of its key takes it: the one that was used last, whose pages are warm.
3. A cell of its key that is starting or being swept will take it: that is sooner than a new one.
4. Where its session and the machine have room, a new cell is made for it.
5. Where there is none, the cell (of the session, if it is the session that is full) that has been idle longest makes
   room.
6. Else it waits.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from operator import attrgetter

from .cell import Cell, CellState
from .run import CellKey, CellSpec, Run


@dataclass(frozen=True, slots=True)
class Assign:
    run: Run
    cell: Cell


@dataclass(frozen=True, slots=True)
class Spawn:
    spec: CellSpec


@dataclass(frozen=True, slots=True)
class Retire:
    cell: Cell


Action = Assign | Spawn | Retire
_idle_since = attrgetter("idle_since")


@dataclass(frozen=True, slots=True)
class Room:
    """How many cells there may be: in all, and for one session."""

    cells: int
    cells_per_session: int


def plan(waiting: Iterable[Run], cells: Sequence[Cell], room: Room, exclusive: Set[str]) -> list[Action]:
    """Decide what to do now, in the order in which to do it. `exclusive` has the words of the calls that are not over,
    or are over and not audited.
    """
    actions: list[Action] = []
    idle: dict[Cell, None] = {}  # all that can make room
    free: dict[CellKey, list[Cell]] = {}
    coming: dict[CellKey, int] = {}
    per_session: dict[str, int] = {}
    kept: set[CellKey] = set()
    sessions = {run.spec.key.session_id for run in waiting}  # the cells of others can make room, and no more
    total = 0
    for cell in cells:
        state, key = cell.state, cell.spec.key
        if state is CellState.DEAD or cell.doomed:
            continue
        total += 1
        if state is CellState.READY and not key.kept_tool:
            idle[cell] = None
        if key.session_id not in sessions:
            continue
        per_session[key.session_id] = per_session.get(key.session_id, 0) + 1
        if state is CellState.READY:
            free.setdefault(key, []).append(cell)
        elif state is not CellState.BUSY:
            coming[key] = coming.get(key, 0) + 1
        if key.kept_tool:
            kept.add(key)
    for same in free.values():
        same.sort(key=_idle_since)
    taken = set(exclusive)
    for run in waiting:
        key = run.spec.key
        if run.exclusive and run.exclusive in taken:
            continue
        if free.get(key):
            cell = free[key].pop()
            idle.pop(cell, None)
            actions.append(Assign(run, cell))
        elif coming.get(key):
            coming[key] -= 1
        elif key in kept:
            continue  # a kept process is the only one of its kind, so that its state is
        elif (of_session := per_session.get(key.session_id, 0)) < room.cells_per_session and total < room.cells:
            total += 1
            per_session[key.session_id] = of_session + 1
            actions.append(Spawn(run.spec))
        else:
            crowded = of_session >= room.cells_per_session
            victim = _longest_idle(idle, key.session_id if crowded else None) if idle else None
            if victim is None:
                continue
            del idle[victim]
            if victim in free.get(victim.spec.key, ()):
                free[victim.spec.key].remove(victim)
            if victim.spec.key.session_id in per_session:
                per_session[victim.spec.key.session_id] -= 1
            per_session[key.session_id] = per_session.get(key.session_id, 0) + 1
            actions += [Retire(victim), Spawn(run.spec)]
        if run.exclusive:
            taken.add(run.exclusive)
    return actions


def _longest_idle(idle: Iterable[Cell], session_id: str | None = None) -> Cell | None:
    candidates = [cell for cell in idle if session_id is None or cell.spec.key.session_id == session_id]
    return min(candidates, key=_idle_since, default=None)


def outlived(cells: Iterable[Cell], now: float, idle_s: float) -> list[Retire]:
    """The cells that have been idle so long that their sessions count as parked. Kept processes stay."""
    return [
        Retire(cell) for cell in cells if cell.free and not cell.spec.key.kept_tool and now - cell.idle_since > idle_s
    ]
