"""The session tree (ADR-0002): who may open a child, and how sessions close or are suspended with all below them.

Main is at the root, Branches are below it, Workers are leaves. At a close, running calls are told and get their grace,
queued calls end, and nothing keeps running. Only a tool that reads `ctx.cancelled` gets the grace, because no other
tool can notice the close. A session without such calls closes at once. The close does not wait for a call that has
ended by itself.
"""

import logging
import math
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final, Protocol

import anyio

from toolcell.errors import UsageError
from toolcell.pool.cell import CANCEL_GRACE_S
from toolcell.pool.run import Run
from toolcell.sessions.session_result import SessionState
from toolcell_tools.capability import SessionKind

MAX_DEPTH: Final = 4
"""The most levels below the root, which has depth 0."""
MAX_CHILDREN: Final = 8


class SessionNode(Protocol):
    """A session as the rules see it."""

    @property
    def kind(self) -> SessionKind: ...
    @property
    def depth(self) -> int: ...
    @property
    def living_children(self) -> int: ...


def check_child(parent: SessionNode, kind: SessionKind) -> None:
    """Raise UsageError unless `parent` may open a child of this kind."""
    if parent.kind is SessionKind.WORKER:
        raise UsageError("A Worker session is a leaf: it opens no children. Open the session from its parent.")
    if kind is SessionKind.MAIN:
        raise UsageError("A Main session is the root of its tree: open it with supervisor.open_session(…).")
    if parent.depth + 1 > MAX_DEPTH:
        raise UsageError(f"The session tree is {MAX_DEPTH} deep at the most. Open the session nearer to the root.")
    if parent.living_children >= MAX_CHILDREN:
        raise UsageError(f"A session has at most {MAX_CHILDREN} open children. Close one first.")


ORPHAN_GRACE_S: Final = 30.0
"""The least grace, in seconds, for calls of a session whose parent closes (ADR-0002: cancel, 30 s, forced end)."""
STUBBORN_S: Final = 1.0
"""Seconds that a cancelled task may take to end. A task that catches its cancellation is left running."""
CLOSES, IS_SUSPENDED = "the session closes", "the session is suspended"
_log = logging.getLogger("toolcell")


class Work:
    """Work for a call in this process: a host tool, or a question to an approver. The cancellation of `scope` ends
    it."""

    def __init__(self, what: str) -> None:
        self.scope = anyio.CancelScope()
        self.is_told = False
        self.left = anyio.Event()
        self._what = what
        self._heeds = False
        self.goes_on_in_this_task()

    def goes_on_in_this_task(self) -> None:
        """The current task does this work from now on."""
        self._task = anyio.get_current_task().id

    @property
    def is_of_this_task(self) -> bool:
        """Whether the current task does this work. A task cannot wait for itself."""
        return self._task == anyio.get_current_task().id

    def looked_at(self) -> bool:
        """Whether the work must end. Work that asks gets the grace. May be called from any thread."""
        self._heeds = True
        return self.is_told

    async def end(self, grace_s: float) -> None:
        """Wait for the end of the work. Cancel it after the grace, or soon if it never called `looked_at`."""
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


class SessionLife:
    """The state of a session, and the work that ends with it. `closed` is whether no call may run: the session has
    ended, or is suspended."""

    __slots__ = ("_host_turn", "closed", "ended", "grace_s", "parked", "state", "works")

    def __init__(self, grace_s: float) -> None:
        """`grace_s` is the time, in seconds, that a tool gets at the close if it reads `ctx.cancelled`."""
        self.closed = False
        self.state = SessionState.ACTIVE
        self.ended: anyio.Event | None = None  # made by the close, set when it is over
        self.parked: anyio.Event | None = None  # made by the suspension, set when it is over
        self.grace_s = grace_s
        self.works: set[Work] = set()
        self._host_turn: anyio.Lock | None = None

    @contextmanager
    def doing(self, what: str) -> Generator[Work, None, None]:
        """Register work for a call. It ends with the session."""
        work = Work(what)
        self.works.add(work)
        try:
            yield work
        finally:
            self.works.discard(work)
            work.left.set()

    @property
    def host_turn(self) -> anyio.Lock:
        """Held by a sequential host tool while it runs."""
        if self._host_turn is None:
            self._host_turn = anyio.Lock()
        return self._host_turn


class Closing(Protocol):
    """A session as the close sees it."""

    @property
    def life(self) -> SessionLife: ...
    @property
    def children(self) -> "Sequence[Closing]": ...

    def tell_end(self, reason: str, least_s: float, most_s: float) -> Sequence[Run]:
        """Tell the session's calls in cells to end. Returns the running ones."""
        ...

    def end_now(self, summary: str) -> None:
        """Kill what is left of the session's calls, and make its result."""
        ...

    def park(self) -> None:
        """Kill what is left of the session's calls. The session itself stays."""
        ...

    def returning(self, *, last: bool) -> Callable[[], Coroutine[Any, Any, object]] | None:
        """Brings a workspace that was sent to a node back, before the end (`last`) or the suspension. None if there is
        nothing to bring."""
        ...


async def close(
    roots: Iterable[Closing],
    most_s: float = math.inf,
    outcome: SessionState = SessionState.COMPLETED,
    summary: str = "",
    on_closed: Callable[[Sequence[Any]], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Close sessions and all below them, concurrently. No call gets more than `most_s` seconds. All get `outcome`, and
    the roots `summary`. `on_closed` is called with the sessions that this has closed, the deepest first."""
    closing: list[tuple[Closing, str]] = []
    waits: list[Callable[[], Coroutine[Any, Any, object]]] = []
    for root in roots:
        for session in _below(root):
            life = session.life
            if life.ended is not None:
                waits.append(life.ended.wait)  # another task closes it
            elif not life.closed or life.state is SessionState.SUSPENDED:
                life.closed, life.state, life.ended = True, outcome, anyio.Event()
                closing.append((session, summary if session is root else ""))
                waits += _told(session, CLOSES, 0.0 if session is root else ORPHAN_GRACE_S, most_s)
    with ExitStack() as last:
        for session, text in closing:  # the deepest sessions first
            last.callback(_end, session, text)
        await _all(waits)
        await _all([work for session, _ in closing if (work := session.returning(last=True)) is not None])
    if on_closed is not None and closing:
        await on_closed([session for session, _ in reversed(closing)])


def _end(session: Closing, summary: str) -> None:
    session.end_now(summary)
    if session.life.ended is not None:
        session.life.ended.set()


async def suspend(root: Closing, most_s: float = math.inf) -> list[Closing]:
    """Suspend a session and all below it. Returns those that were active. Their calls end as at a close, except that
    questions to approvers stay in the store. If the session is closed meanwhile, the close counts."""
    suspending: list[Closing] = []
    waits: list[Callable[[], Coroutine[Any, Any, object]]] = []
    for session in _below(root):
        life = session.life
        if not life.closed:
            life.closed, life.state, life.parked = True, SessionState.SUSPENDED, anyio.Event()
            suspending.append(session)
            waits += _told(session, IS_SUSPENDED, 0.0, most_s)
        elif life.parked is not None and life.state is SessionState.SUSPENDED:
            waits.append(life.parked.wait)  # another task suspends it
    try:
        await _all(waits)
        await _all([work for session in suspending if (work := session.returning(last=False)) is not None])
    finally:
        with ExitStack() as last:
            for session in suspending:
                last.callback(_park, session)
    return suspending


def _park(session: Closing) -> None:
    try:
        if session.life.state is SessionState.SUSPENDED:
            session.park()
    finally:
        if session.life.parked is not None:
            session.life.parked.set()


def _below(root: Closing) -> Iterator[Closing]:
    yield root
    for child in root.children:
        yield from _below(child)


def _told(
    session: Closing, reason: str, least_s: float, most_s: float
) -> Iterator[Callable[[], Coroutine[Any, Any, object]]]:
    """Tell everything that runs for a session to end. Yields a function that waits for each."""
    for run in session.tell_end(reason, least_s, most_s):
        run.over = anyio.Event()
        yield run.over.wait
    for work in list(session.life.works):
        work.is_told = True
        if not work.is_of_this_task:
            yield partial(work.end, min(most_s, max(least_s, session.life.grace_s)))


async def _all(waits: Sequence[Callable[[], Coroutine[Any, Any, object]]]) -> None:
    if waits:
        async with anyio.create_task_group() as tasks:
            for wait in waits:
                tasks.start_soon(wait)
