"""Decide which call runs in which cell. This is a pure function; the pool carries out the decision.

Sessions take turns (`fairly`): of the waiting calls, the one whose session has the fewest running calls is next. Inside
a session, the oldest is next. The rules, in order, for each waiting call:

1. A call that must not overlap with another (`exclusive`) waits until the other is over and, if watched, audited.
2. A free cell of its key takes it: the most recently used one, whose pages are warm.
3. A cell of its key that is starting or being swept will take it, because that is faster than a new cell.
4. If no bound is reached, a cell is made for it. The bounds are on the cells of its session, on all cells and, for a
   kept process, on kept processes.
5. If a bound is reached, the longest idle of the cells that count towards it is evicted. An idle kept process is
   evicted only if there is no other idle cell. Its state is lost, so it may tear down first, and the call waits until
   the process is gone. A session that has cells does not take one that another session has just used, unless the other
   has more cells.
6. A session that has running calls leaves places to the sessions that are awaited and have no calls now: a place for
   one of them, or places for two if there are more. A place is room for a cell, or an idle cell of such a session. If a
   place is missing, the longest idle cell of the session itself is evicted, unless it is a kept process.
7. Otherwise the call waits.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence, Set, Sized
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Final, Generic, Protocol, TypeVar

from .cell import Snapshot, State
from .cell.state import ENDING, IDLE, WITH_CALL
from .run import SOON_S, CellKey, CellSpec

HELD_S = 0.2
"""How long a session keeps an idle cell that a session with as many cells wants. So a session that makes one call after
another keeps its cell beside sessions that flood the pool."""
SHARE = 4
"""A session may have so many times more waiting calls than places are left in the queue: dynamic thresholds, as in
shared-memory switches (Choudhury and Hahne, 1998). So sessions that flood leave places to the others."""
MOST_PLACES: Final = 2
"""The most places that a session leaves to others: one for a quiet session, and another for a session that begins to
flood the pool, which would otherwise take the place of the quiet one."""
PACED: Final = 20  # so many calls must have been taken before there is an estimate
PACE_SHARE: Final = 0.05  # of the last time in the mean time between two of them
LATE_S = 60.0  # the longest `retry_after_s` of a call that found no cell


class Waiting(Protocol):
    """The part of a waiting call that the plan reads."""

    @property
    def spec(self) -> CellSpec: ...
    @property
    def exclusive(self) -> str: ...


R = TypeVar("R", bound=Waiting)


@dataclass(frozen=True, slots=True)
class Assign(Generic[R]):
    run: R
    cell: int


@dataclass(frozen=True, slots=True)
class Spawn:
    spec: CellSpec


@dataclass(frozen=True, slots=True)
class Retire:
    cell: int


Decision = Assign[R] | Spawn | Retire
_idle_since = attrgetter("idle_since")
_turn_of = itemgetter(0)


@dataclass(frozen=True, slots=True)
class Room:
    """The maximum number of cells, in total and for one session."""

    cells: int
    cells_per_session: int

    @property
    def kept(self) -> int:
        """The most cells that may be kept processes: three quarters, so that a quarter is left to other calls."""
        return max(1, self.cells * 3 // 4)


def foremost(waiting: Iterable[R], most: int) -> list[R]:
    """The waiting calls that can be next. A session has at most `most` cells, so of its calls of one route, only the
    first `most` can get one now. So a long queue costs the plan little."""
    found: list[R] = []
    ahead: dict[tuple[int, str], int] = {}
    for run in waiting:
        same = id(run.spec), run.exclusive  # calls of one route share a spec
        number = ahead.get(same, 0)
        if number < most:
            ahead[same] = number + 1
            found.append(run)
    return found


def fairly(waiting: Iterable[R], cells: Iterable[Snapshot]) -> list[R]:
    """The waiting calls in the order in which sessions take turns: each session's first call comes after as many calls
    of the others as the session has running calls."""
    turns = Counter(cell.key.session_id for cell in cells if cell.state in WITH_CALL)
    ranked: list[tuple[int, R]] = []
    for run in waiting:
        session_id = run.spec.key.session_id
        ranked.append((turns[session_id], run))
        turns[session_id] += 1
    return [run for _turn, run in sorted(ranked, key=_turn_of)]  # a stable sort: the order of arrival within a turn


def plan(
    waiting: Iterable[R],
    cells: Sequence[Snapshot],
    room: Room,
    exclusive: Set[str],
    now: float = math.inf,
    awaited: Collection[str] = (),
) -> list[Decision[R]]:
    """Decide what to do now. The decisions are in the order in which to carry them out. `exclusive` has the words of
    the calls that are running, or are over and not audited yet. `awaited` are the sessions that have made calls of
    late, and so may soon make another.
    """
    decisions: list[Decision[R]] = []
    waiting = fairly(foremost(waiting, room.cells_per_session), cells)
    crowd = _Crowd(room, {run.spec.key for run in waiting}, now, awaited)
    free: dict[CellKey, list[Snapshot]] = {}
    coming: dict[CellKey, int] = {}
    kept: set[CellKey] = set()
    sessions = {run.spec.key.session_id for run in waiting}  # cells of other sessions can only be evicted
    for cell in cells:
        state, key = cell.state, cell.key
        if not crowd.add(cell) or key.session_id not in sessions or state is State.RETIRING:
            continue
        if state is State.READY:
            free.setdefault(key, []).append(cell)
        elif state is not State.BUSY:
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
            crowd.idle.pop(cell.id, None)
            decisions.append(Assign(run, cell.id))
        elif coming.get(key):
            coming[key] -= 1
        elif key in kept:
            continue  # a session has one kept process of a tool, because the process holds state
        else:
            victims = crowd.make_room(key)
            if victims is None:
                continue
            for victim in victims:
                if victim.state is not State.RETIRING:
                    decisions.append(Retire(victim.id))
                if victim in free.get(victim.key, ()):
                    free[victim.key].remove(victim)
            if not any(victim.key.kept_tool for victim in victims):  # otherwise the call waits for their teardown
                decisions.append(Spawn(run.spec))
            if key.kept_tool:
                kept.add(key)
        if run.exclusive:
            taken.add(run.exclusive)
    return decisions


class _Crowd:
    """The cells that take up room, and those that can be evicted to make room."""

    def __init__(self, room: Room, wanted: Set[CellKey], now: float, awaited: Collection[str]) -> None:
        self._now = now
        self._awaited = awaited
        self.idle: dict[int, Snapshot] = {}
        self._room = room
        self._wanted = wanted
        self._waiting = {key.session_id for key in wanted}
        self._leaving: dict[int, Snapshot] = {}  # kept processes that tear down, and whose room no call gets yet
        self._total = self._kept = 0
        self._per_session: Counter[str] = Counter()
        self._hopeless: set[tuple[str, bool]] = set()  # (session, kept process or not) for which no room can be made

    def add(self, cell: Snapshot) -> bool:
        """Count a cell. Returns False for a dead or dying cell, which takes up no room."""
        if cell.state is State.RETIRING:
            self._leaving[cell.id] = cell
        elif cell.state in ENDING:
            return False
        elif cell.state is State.READY:
            self.idle[cell.id] = cell
        self._count(cell.key, 1)
        return True

    def make_room(self, key: CellKey) -> list[Snapshot] | None:
        """Count a new cell of this key. Returns the cells that must end before it is made, or None if none can."""
        session_id, is_kept = key.session_id, bool(key.kept_tool)
        if (session_id, is_kept) in self._hopeless:
            return None
        victims: list[Snapshot] = []
        if self._per_session[session_id] >= self._room.cells_per_session:
            victims += self._victims(lambda cell: cell.key.session_id == session_id)
        if is_kept and self._kept >= self._room.kept:
            victims += self._victims(lambda cell: bool(cell.key.kept_tool))
        if self._total >= self._room.cells:
            victims += self._victims(lambda cell: self._may_take(session_id, cell))
        self._count(key, 1)
        if not self._leaves_places(session_id):
            victims += self._victims(lambda cell: cell.key.session_id == session_id and not cell.key.kept_tool)
        if self._is_over(key) or not self._leaves_places(session_id):
            self._count(key, -1)
            for cell in victims:
                self.add(cell)
            self._hopeless.add((session_id, is_kept))
            return None
        return victims

    def _may_take(self, session_id: str, cell: Snapshot) -> bool:
        """Whether the session may have the room of this cell."""
        mine, theirs = self._per_session[session_id], self._per_session[cell.key.session_id]
        return (
            cell.key.session_id == session_id or not mine or theirs > mine + 1 or self._now - cell.idle_since >= HELD_S
        )

    def _leaves_places(self, session_id: str) -> bool:
        """Whether the session leaves places to others, or need not, because it has no running call."""
        left = self._room.cells - self._total
        if left >= MOST_PLACES or self._per_session[session_id] < 2:
            return True
        idle = Counter(cell.key.session_id for cell in self.idle.values())
        leaving = sum(cell.key.session_id == session_id for cell in self._leaving.values())
        if self._per_session[session_id] - idle[session_id] - leaving < 2:
            return True
        return has_places(left, self._awaited, idle, self._waiting | (self._per_session - idle).keys() | {session_id})

    def _is_over(self, key: CellKey) -> bool:
        of_kept = bool(key.kept_tool) and self._kept > self._room.kept
        return (
            self._total > self._room.cells
            or self._per_session[key.session_id] > self._room.cells_per_session
            or of_kept
        )

    def _victims(self, fits: Callable[[Snapshot], bool]) -> Iterator[Snapshot]:
        """The cell to evict, if there is one. A cell that is already leaving comes first."""
        leaving, idle = self._leaving.values(), self.idle.values()
        cell = next(filter(fits, leaving), None) or min(filter(fits, idle), key=self._price, default=None)
        if cell is not None:
            self._leaving.pop(cell.id, None)
            self.idle.pop(cell.id, None)
            self._count(cell.key, -1)
            yield cell

    def _price(self, cell: Snapshot) -> tuple[bool, bool, float]:
        return _price(cell, self._wanted)

    def _count(self, key: CellKey, by: int) -> None:
        self._total += by
        self._per_session[key.session_id] += by
        self._kept += by * bool(key.kept_tool)


def _price(cell: Snapshot, wanted: Container[CellKey]) -> tuple[bool, bool, float]:
    """The order of eviction: the longest idle cell first, then kept processes, then those that a call waits for."""
    is_kept = bool(cell.key.kept_tool)
    return is_kept, is_kept and cell.key in wanted, cell.idle_since


def has_places(left: int, awaited: Iterable[str], idle: Mapping[str, int], active: Container[str]) -> bool:
    """Whether there are places for the awaited sessions that are not `active`: room for `left` cells, and the `idle`
    cells, by session."""
    quiet = islice((each for each in awaited if each not in active), MOST_PLACES)
    places = left + sum(number for each, number in idle.items() if each not in active)
    return places >= MOST_PLACES or places >= sum(1 for _ in quiet)


def is_crowded(cells: int, room: Room, awaited: Sized) -> bool:
    """Whether places may be missing, so that `gives_way` must be asked. Each call of a busy pool asks this."""
    return cells > room.cells - MOST_PLACES and len(awaited) > 1


def gives_way(cell: Snapshot, cells: Iterable[Snapshot], room: Room, awaited: Iterable[str], waiting: Set[str]) -> bool:
    """Whether a cell that has just become idle must end to leave a place to another session (rule 6 of the plan). A
    kept process never must, because its state would be lost. `waiting` are the sessions with waiting calls."""
    session_id = cell.key.session_id
    living = [each for each in cells if each.state not in ENDING]
    if cell.key.kept_tool or sum(each.key.session_id == session_id for each in living) < 2:
        return False
    active = {each.key.session_id for each in living if each.state is not State.READY} | waiting | {session_id}
    idle = Counter(each.key.session_id for each in living if each.state is State.READY)
    return not has_places(room.cells - len(living), awaited, idle, active)


def cheapest_to_evict(cells: Iterable[Snapshot]) -> int | None:
    """The cell whose eviction costs least, or None if none is idle."""
    free = [cell for cell in cells if cell.state is State.READY]
    return min(free, key=lambda cell: _price(cell, ())).id if free else None


def obstacle(run: Waiting, cells: Iterable[Snapshot], room: Room, exclusive: Set[str], now: float) -> tuple[str, float]:
    """Why a waiting call has no cell, and in how many seconds one is likely. The estimate assumes that a running call
    takes as long again as it has run, but not beyond its deadline.
    """
    key = run.spec.key
    living = [cell for cell in cells if cell.state not in ENDING]
    of_session = [cell for cell in living if cell.key.session_id == key.session_id]
    of_kept = [cell for cell in living if cell.key.kept_tool]
    holders: Sequence[Snapshot]
    if run.exclusive in exclusive:
        why = "an earlier call of the session, with which it must not overlap, is not over"
        holders = [cell for cell in of_session if cell.exclusive == run.exclusive]
    elif key.kept_tool and any(cell.key == key for cell in of_session):
        why = "the tool's kept process is busy with another call"
        holders = [cell for cell in of_session if cell.key == key]
    elif len(of_session) >= room.cells_per_session:
        why = f"all {room.cells_per_session} cells that the session may have are busy"
        holders = of_session
    elif key.kept_tool and len(of_kept) >= room.kept:
        why = f"all {room.kept} processes that may be kept over calls (three quarters of max_cells) are busy"
        holders = of_kept
    else:
        kept = f", {len(of_kept)} of them with calls of kept processes" if of_kept else ""
        why = f"all {room.cells} cells that max_cells allows are busy{kept}"
        holders = living
    return why, min((_remaining_s(cell, now) for cell in holders if cell.state in WITH_CALL), default=SOON_S)


def may_queue(own: int, total: int, most: int) -> bool:
    """Whether a session with `own` waiting calls may queue one more, where `total` of `most` wait. The last place is
    for a session without waiting calls."""
    left = most - total
    return left > 0 and own <= SHARE * (left - 1)


def behind(run: Waiting, queues: Mapping[str, Iterable[R]]) -> dict[str, list[R]]:
    """The waiting calls that `run` cannot overtake, by session. Of the calls of a row, only the first takes a cell from
    other calls. A row are calls that must not overlap, or calls for one kept process."""
    found: dict[str, list[R]] = {}
    own = _row_of(run)
    for session_id, queue in queues.items():
        ahead: list[R] = found.setdefault(session_id, [])
        rows: set[object] = set()
        for each in queue:
            row = _row_of(each)
            if row is None or row == own or row not in rows:
                ahead.append(each)
            rows.add(row)
    return found


def _row_of(run: Waiting) -> object:
    """The row of a call, of which one call runs at a time: the word of its `exclusive`, or the key of its kept process;
    None for a call that is in no row."""
    return run.exclusive or (run.spec.key if run.spec.key.kept_tool else None)


class Pace:
    """The mean time between two calls that are taken from a queue, while others wait: a moving average."""

    __slots__ = ("_number", "_taken_at", "mean_s")

    def __init__(self) -> None:
        self.mean_s = 0.0
        self._number = 0
        self._taken_at = 0.0

    @property
    def is_known(self) -> bool:
        """Whether enough calls were taken for an estimate."""
        return self._number >= PACED

    def take(self, now: float, *, is_last: bool) -> None:
        """Note that a call is taken. After the last one, nothing waits."""
        if self._taken_at:
            self._number += 1
            self.mean_s += (now - self._taken_at - self.mean_s) * max(1 / self._number, PACE_SHARE)
        self._taken_at = 0.0 if is_last else now


def least_wait_s(session_id: str, queues: Mapping[str, Sized], pace_s: float) -> float:
    """How long a call of this session will wait at least, behind the calls in `queues`, which are by session. `pace_s`
    is the mean time from one call that is taken from a queue to the next. The estimate takes half of it, because later
    calls may be shorter."""
    own = len(queues.get(session_id, ()))
    others = sum(min(len(queue), own) for other, queue in queues.items() if other != session_id)
    return (own + others) * pace_s / 2


def _remaining_s(cell: Snapshot, now: float) -> float:
    return min(LATE_S, max(SOON_S, min(now - cell.started_at, cell.deadline_at - now)))


def outlived(cells: Iterable[Snapshot], now: float, idle_s: float) -> list[Retire]:
    """The cells that have been idle for `idle_s` seconds, so that their sessions are parked. Kept processes stay."""
    return [
        Retire(cell.id)
        for cell in cells
        if cell.state in IDLE and not cell.key.kept_tool and now - cell.idle_since > idle_s
    ]
