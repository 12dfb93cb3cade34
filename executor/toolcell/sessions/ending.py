"""The end of sessions: what runs is told and has its grace, what waits is ended at once, and nothing goes on.

Only a tool that looks at `ctx.cancelled` is given the grace; any other cannot notice the close. A session whose calls
do not look closes in a moment. A call that ends by itself ends the wait for it.
"""

import logging
import math
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from toolcell.pool.cell import CANCEL_GRACE_S

if TYPE_CHECKING:
    from toolcell.session import Session

ORPHAN_GRACE_S: Final = 30.0
"""The least grace for calls of a session whose parent closes (ADR-0002: cancel signal, 30 s, forced end)."""
STUBBORN_S: Final = 1.0
"""How long a task that was cancelled may take to leave; one that catches its cancellation is left behind."""
REASON: Final = "the session closes"
_log = logging.getLogger("toolcell")


class Work:
    """What a session does for a call in this process: a host tool, or a question to an approver. Cancelling `scope`
    ends it."""

    def __init__(self, what: str) -> None:
        self.scope = anyio.CancelScope()
        self.is_told = False
        self.left = anyio.Event()
        self._what = what
        self._heeds = False
        self._task = anyio.get_current_task().id

    @property
    def is_of_this_task(self) -> bool:
        """Whether the current task does this work: it cannot wait for itself."""
        return self._task == anyio.get_current_task().id

    def looked_at(self) -> bool:
        """Whether it is to end. Who asks is given the grace. From any thread."""
        self._heeds = True
        return self.is_told

    async def end(self, grace_s: float) -> None:
        """Wait until it has left; cancel it where it does not heed, or after the grace."""
        try:
            for seconds in (min(CANCEL_GRACE_S, grace_s), grace_s - CANCEL_GRACE_S):
                with anyio.move_on_after(seconds):
                    await self.left.wait()
                if self.left.is_set() or not self._heeds:
                    break
        finally:
            self.scope.cancel()
        with anyio.move_on_after(STUBBORN_S):
            await self.left.wait()
        if not self.left.is_set():
            _log.warning("%s goes on after its session was closed: it catches its cancellation", self._what)


@contextmanager
def doing(session: "Session", what: str) -> Generator[Work, None, None]:
    """Do something for a call that ends with its session."""
    work = Work(what)
    session.works.add(work)
    try:
        yield work
    finally:
        session.works.discard(work)
        work.left.set()


async def close(roots: Iterable["Session"], most_s: float = math.inf) -> None:
    """Close sessions and all below them, side by side. No call is given more than `most_s` seconds."""
    closing: list[Session] = []
    waits: list[Callable[[], Coroutine[Any, Any, object]]] = []
    for root in roots:
        for session in _below(root):
            if session.ending is not None:
                waits.append(session.ending.wait)  # another task closes it
            elif not session.closed:
                session.closed, session.ending = True, anyio.Event()
                closing.append(session)
                waits += _told(session, 0.0 if session is root else ORPHAN_GRACE_S, most_s)
    with ExitStack() as last:
        for session in closing:  # the deepest are the first to go
            last.callback(session.end_now)
        await _all(waits)


def _below(root: "Session") -> Iterator["Session"]:
    yield root
    for child in root.children:
        yield from _below(child)


def _told(session: "Session", least_s: float, most_s: float) -> Iterator[Callable[[], Coroutine[Any, Any, object]]]:
    """Tell what runs for a session that it is to end; yields how to wait for each."""
    for run in session.pool.tell_end(session.id, REASON, least_s, most_s):
        run.over = anyio.Event()
        yield run.over.wait
    for work in list(session.works):
        work.is_told = True
        if not work.is_of_this_task:
            yield partial(work.end, min(most_s, max(least_s, session.profile.limits.grace_s)))


async def _all(waits: Sequence[Callable[[], Coroutine[Any, Any, object]]]) -> None:
    if waits:
        async with anyio.create_task_group() as tasks:
            for wait in waits:
                tasks.start_soon(wait)
