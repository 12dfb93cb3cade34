"""Turnstiles: so many calls at a time, and the sessions that wait take turns."""

from collections import Counter
from collections.abc import Iterable

import anyio

__all__ = ["Turnstile"]


class Turnstile:
    """Lets `limit` calls through at a time. Of the calls that wait, the next one is of the session with the fewest
    calls inside; of these, the one that came first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._inside: Counter[str] = Counter()
        self._waiting: dict[anyio.Event, str] = {}  # in the order of arrival

    def __repr__(self) -> str:
        return f"<Turnstile {self._inside.total()} of {self._limit} inside · {len(self._waiting)} waiting>"

    async def enter(self, session_id: str) -> None:
        """Wait for a place. Whoever has entered must leave."""
        if self._inside.total() < self._limit:
            self._inside[session_id] += 1
            return
        turn = anyio.Event()
        self._waiting[turn] = session_id
        try:
            await turn.wait()
        except BaseException:
            if self._waiting.pop(turn, None) is None:  # the place was given in the same moment
                self.leave(session_id)
            raise

    def leave(self, session_id: str) -> None:
        """Give the place to the next call."""
        self._inside[session_id] -= 1
        if not self._inside[session_id]:
            del self._inside[session_id]
        if self._waiting and self._inside.total() < self._limit:
            turn = min(self._waiting, key=lambda each: self._inside[self._waiting[each]])
            self._inside[self._waiting.pop(turn)] += 1
            turn.set()


async def enter_all(turnstiles: Iterable[Turnstile], session_id: str) -> list[Turnstile]:
    """Enter the turnstiles, one after the other and always in the same order. Returns those entered. If the wait is
    cancelled, none is."""
    entered: list[Turnstile] = []
    try:
        for turnstile in turnstiles:
            await turnstile.enter(session_id)
            entered.append(turnstile)
    except BaseException:
        for turnstile in entered:
            turnstile.leave(session_id)
        raise
    return entered
