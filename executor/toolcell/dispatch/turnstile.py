"""Turnstiles: so many calls at a time, and the sessions that wait take turns."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import anyio

from toolcell.pool.plan import Pace, least_wait_s, may_queue
from toolcell.rules.limits import Concurrency
from toolcell_tools.capability import SessionKind

MAX_WAITING: Final = 1000
PATIENCE: Final = 16
"""After so many calls have overtaken a call, the places that it waits for are given to no other."""


class Turnstile:
    """Has `limit` places for calls."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.inside: Counter[str] = Counter()
        """The calls that have a place, by session."""
        self.count = 0
        self.pace = Pace()

    def __repr__(self) -> str:
        return f"<Turnstile {self.count} of {self.limit} inside>"

    @property
    def has_room(self) -> bool:
        return self.count < self.limit

    def take(self, session_id: str) -> None:
        self.inside[session_id] += 1
        self.count += 1

    def give_back(self, session_id: str) -> None:
        self.count -= 1
        self.inside[session_id] -= 1
        if not self.inside[session_id]:
            del self.inside[session_id]


class _Entrant:
    """A call that waits for a place in each of its turnstiles."""

    __slots__ = ("overtaken", "session_id", "turn", "turnstiles")

    def __init__(self, session_id: str, turnstiles: Sequence[Turnstile]) -> None:
        self.session_id = session_id
        self.turnstiles = turnstiles
        self.turn = anyio.Event()
        self.overtaken = 0

    @property
    def rank(self) -> tuple[bool, int]:
        """The order of the turns: the session with the fewest calls inside is next."""
        most = max(turnstile.inside[self.session_id] for turnstile in self.turnstiles)
        return self.overtaken < PATIENCE, most


class Queue:
    """The calls that wait at the turnstiles of one supervisor.

    A call gets all its places at the same time, so it holds none while it waits. Among the calls whose turnstiles all
    have room, a call of the session with the fewest calls inside is next, and among those the oldest.
    """

    def __init__(self, *, max_waiting: int = MAX_WAITING, now: Callable[[], float] = time.monotonic) -> None:
        self._waiting: dict[_Entrant, None] = {}  # in the order of arrival
        self._max_waiting = max_waiting
        self._now = now

    def __len__(self) -> int:
        return len(self._waiting)

    def refusal_s(self, turnstiles: Sequence[Turnstile], session_id: str, wall_s: float) -> float:
        """The seconds after which a call may be tried again that cannot wait here: the queue is full for its session,
        or its `wall_s` seconds would pass before its turn. 0 if it may enter or wait."""
        if not self._waiting:
            return 0.0
        wait_s = max(self._least_wait_s(turnstile, session_id) for turnstile in turnstiles)
        own = sum(waiter.session_id == session_id for waiter in self._waiting)
        if not may_queue(own, len(self._waiting), self._max_waiting):
            return max(1.0, wait_s)
        return wait_s if wait_s > wall_s else 0.0

    async def enter(self, turnstiles: Sequence[Turnstile], session_id: str) -> None:
        """Wait for a place in each turnstile. Whoever has entered must leave."""
        if not self._waiting and all(turnstile.has_room for turnstile in turnstiles):
            _take(turnstiles, session_id)
            return
        waiter = _Entrant(session_id, turnstiles)
        self._waiting[waiter] = None
        self._let_in()
        try:
            await waiter.turn.wait()
        except BaseException:
            if waiter.turn.is_set():  # the places were given in the same moment
                self.leave(turnstiles, session_id)
            else:
                del self._waiting[waiter]
                self._let_in()  # it may have kept others from its places
            raise

    def leave(self, turnstiles: Sequence[Turnstile], session_id: str) -> None:
        """Give the places to the next calls."""
        for turnstile in turnstiles:
            turnstile.give_back(session_id)
        self._let_in()

    def _let_in(self) -> None:
        while (waiter := self._next()) is not None:
            del self._waiting[waiter]
            _take(waiter.turnstiles, waiter.session_id)
            for turnstile in waiter.turnstiles:
                turnstile.pace.take(
                    self._now(), is_last=not any(turnstile in each.turnstiles for each in self._waiting)
                )
            waiter.turn.set()

    def _next(self) -> _Entrant | None:
        """The waiting call whose turn it is, if the turnstiles of one have room."""
        if not any(_have_room(waiter) for waiter in self._waiting):
            return None
        ahead: list[_Entrant] = []
        kept: set[Turnstile] = set()  # for calls that have waited for too long
        for waiter in sorted(self._waiting, key=lambda each: each.rank):
            if _have_room(waiter) and kept.isdisjoint(waiter.turnstiles):
                for each in ahead:
                    each.overtaken += not set(each.turnstiles).isdisjoint(waiter.turnstiles)
                return waiter
            ahead.append(waiter)
            if waiter.overtaken >= PATIENCE:
                kept.update(waiter.turnstiles)
        return None

    def _least_wait_s(self, turnstile: Turnstile, session_id: str) -> float:
        if not turnstile.pace.is_known:
            return 0.0
        queues: dict[str, list[_Entrant]] = {}
        for waiter in self._waiting:
            if turnstile in waiter.turnstiles:
                queues.setdefault(waiter.session_id, []).append(waiter)
        return least_wait_s(session_id, queues, turnstile.pace.mean_s)


def _have_room(waiter: _Entrant) -> bool:
    return all(turnstile.has_room for turnstile in waiter.turnstiles)


def _take(turnstiles: Sequence[Turnstile], session_id: str) -> None:
    for turnstile in turnstiles:
        turnstile.take(session_id)


class Gate:
    """The turnstiles by tool and by session kind."""

    __slots__ = ("_kinds", "_tools", "is_limited", "queue")

    def __init__(self, concurrency: Concurrency) -> None:
        self._tools = {name: Turnstile(limit) for name, limit in concurrency.tools.items()}
        self._kinds = {kind: Turnstile(limit) for kind, limit in concurrency.kinds.items()}
        self.is_limited = bool(self._tools or self._kinds)
        self.queue = Queue()

    def turnstiles(self, tool: str, kind: SessionKind) -> list[Turnstile]:
        """Those that a call of this tool in a session of this kind must pass."""
        found = (self._tools.get(tool), self._kinds.get(kind))
        return [turnstile for turnstile in found if turnstile is not None]
