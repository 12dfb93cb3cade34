"""The lifetime of a supervisor, which lives in a task of its own, so that any task may begin and end it.

A task group must be left by the task that entered it. So a caller that begins or ends a lifetime only sends a request
to the lifetime's task and waits. The tasks that `beside` starts are in no task group.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from functools import partial
from typing import Any, Literal

import anyio

from toolcell.errors import UsageError
from toolcell.pool.reactor import AsyncioReactor, Reactor, Task, current_reactor
from toolcell.wire import forks

__all__ = ["WITHIN", "Lifetime"]

_log = logging.getLogger("toolcell")
State = Literal["new", "starting", "up", "ending", "over"]
WITHIN: ContextVar[bool] = ContextVar("toolcell.sessions.supervisor_lifetime.within", default=False)
"""True in tasks that the end of the lifetime waits for. They must not wait for the end."""
_WHY_NOT: dict[State, str] = {
    "new": "Start it first: async with Supervisor(…) as supervisor, or await supervisor.start().",
    "starting": "It is starting: wait for start().",
    "ending": "It is closing. Make another one.",
    "over": "It is closed. Make another one.",
}
_FAILED = "One of its tasks failed; the log has the error, and aclose() raises it. Make another one."
_CUT_OFF = (
    "Its event loop ended without aclose(), or cancelled every task. Start, use and close it in one run of a loop, or "
    "take toolcell.blocking, which has a loop of its own."
)
_ELSEWHERE = (
    "The supervisor runs on another event loop. Use it on the one that started it (in pytest-asyncio: the same "
    "loop_scope for the fixture and the test), or take toolcell.blocking, whose methods any thread may call."
)


class _Start:
    """One attempt to start, and the callers that wait for it."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.settled = anyio.Event()  # set when the object is up, or its start has failed
        self.asked = anyio.Event()  # to end
        self.over = anyio.Event()
        self.refusal: BaseException | None = None
        self.waiting = 0
        self.is_had = False  # a caller knows that the object is up


class Lifetime:
    """Runs `start()` and then `stay(up, asked)` in one task, from `begin` to `end`. `stay` calls `up()` when the start
    is complete, waits for `asked()`, and ends everything.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[None]],
        stay: Callable[[Callable[[], None], Callable[[], Awaitable[None]]], Awaitable[None]],
    ) -> None:
        self.state: State = "new"
        self.is_inherited = False
        """Whether a fork has it from its parent, where it was begun."""
        self.failure: BaseException | None = None
        """The exceptions that ended it, or were raised at its end."""
        self._beside: dict[anyio.CancelScope, Task] = {}
        self._failures: list[BaseException] = []  # exceptions of the tasks that `beside` started
        self._start_up = start
        self._stay = stay
        self._start: _Start | None = None
        self._reactor: Reactor | None = None
        self._is_asked = False  # to end
        self._is_told = False

    def __repr__(self) -> str:
        return f"<Lifetime {self.state}>"

    @property
    def reactor(self) -> Reactor:
        """The reactor of the event loop on which it runs."""
        assert self._reactor is not None
        return self._reactor

    @property
    def is_cut_off(self) -> bool:
        """Whether its event loop was closed before its end."""
        return self.state in ("starting", "up", "ending") and self.reactor.is_over()

    @property
    def is_left_open(self) -> bool:
        """Whether it was begun and `end` was not called."""
        return self.state != "new" and not self._is_asked

    def why_not(self) -> UsageError:
        """The error for a caller that needs it to be up."""
        if self.is_inherited:
            return UsageError(forks.FORKED)
        why = _WHY_NOT.get(self.state, _CUT_OFF)
        if self.state in ("ending", "over") and not self._is_asked:
            why = _CUT_OFF if self.failure is None else _FAILED
        error = UsageError(f"The supervisor is not running. {why}")
        error.__cause__ = self.failure
        return error

    def check(self) -> None:
        """Raise UsageError if it is not up, or runs on another event loop than the caller's."""
        if self.is_inherited or self.state != "up" or self.is_cut_off:
            raise self.why_not()
        self._check_here()

    def _check_here(self) -> None:
        if not self.reactor.is_here():
            raise UsageError(_ELSEWHERE)

    async def begin(self) -> None:
        """Start it, or wait for the start that another caller began. Raises what the start raises. Then `begin` may be
        called again.

        If the caller is cancelled and no other caller waits, the start is undone.
        """
        if self.is_inherited or self.state in ("ending", "over") or self.is_cut_off:
            raise self.why_not()
        start = self._spawn() if self._start is None else self._start
        self._check_here()
        if self.state == "up":
            return
        start.waiting += 1
        try:
            await start.settled.wait()
        except BaseException:
            if start.waiting == 1 and not start.is_had:
                self._ask(start)
                await _until_over(start)
            raise
        finally:
            start.waiting -= 1
        if start.refusal is not None:
            raise start.refusal
        start.is_had = True

    async def end(self) -> None:
        """End it, or wait for the end that another caller began. Do nothing if it was never begun. Raises, once, what
        its tasks and its end have raised. A cancelled caller still waits for the end.
        """
        if self._start is None or self.is_inherited or (self.state == "over" and self._is_told):
            return
        if self.state != "over":
            self._check_here()
            self._ask(self._start)
            await _until_over(self._start)
        self._is_asked = self._is_told = True
        if self.failure is not None:
            raise self.failure

    def beside(self, function: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Run a coroutine function in a task of its own. `end_tasks` cancels it. If it raises, the lifetime ends."""
        if self.is_inherited or self.state == "over":
            return  # the supervisor has ended
        scope = anyio.CancelScope()
        self._beside[scope] = self.reactor.task(self._run_beside(scope, function, args))

    async def end_tasks(self) -> None:
        """Cancel the tasks that `beside` has started, and wait for their ends."""
        while self._beside:
            for scope in self._beside:
                scope.cancel()
            first, task = next(iter(self._beside.items()))
            await task.ended()
            self._beside.pop(first, None)  # a task that was cancelled before its first step is still listed

    def give_up(self) -> None:
        """Note that its event loop was closed before its end, so none of its tasks runs."""
        self.state = "over"
        self._is_asked = self._is_told = True

    def let_go(self) -> None:
        """Note that this process is a fork of the one in which it was begun."""
        self.is_inherited = True
        self.give_up()

    def _spawn(self) -> _Start:
        self._reactor = current_reactor()
        self._start = start = _Start()
        self._is_asked = False
        self.state = "starting"
        self._task = self._reactor.task(self._run(start))  # event loops only hold weak references to tasks
        return start

    def _ask(self, start: _Start) -> None:
        self._is_asked = True
        start.asked.set()
        if self.state == "starting":
            start.scope.cancel()

    # -- in its task --------------------------------------------------------------------------------------------------

    async def _run(self, start: _Start) -> None:
        try:
            with start.scope:
                await self._start_up()
            if not start.scope.cancelled_caught:
                await self._stay(partial(self._up, start), partial(self._until_asked, start))
        except GeneratorExit:
            raise  # the event loop was closed
        except anyio.get_cancelled_exc_class():
            raise  # it ends
        except BaseException as error:
            if self.state == "starting":
                start.refusal = error
            else:
                self._fail(error, of_task=False)
            self._let_out(error)
        finally:
            self._finish(start)

    async def _run_beside(
        self, scope: anyio.CancelScope, function: Callable[..., Coroutine[Any, Any, None]], args: tuple[object, ...]
    ) -> None:
        WITHIN.set(True)
        try:
            with scope:
                await function(*args)
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            self._fail(error, of_task=True)
            if self._start is not None:
                self._start.asked.set()
            self._let_out(error)
        finally:
            self._beside.pop(scope, None)

    def _fail(self, error: BaseException, *, of_task: bool) -> None:
        """Note an exception of a task or of the end. Exceptions of tasks are in a group, as in a task group."""
        if not self._is_asked:
            _log.error("the supervisor ends, because one of its tasks failed", exc_info=error)
        self._failures.append(error)
        alone = len(self._failures) == 1 and (not of_task or isinstance(error, BaseExceptionGroup))
        self.failure = error if alone else BaseExceptionGroup("the supervisor failed", self._failures)

    def _let_out(self, error: BaseException) -> None:
        """Raise KeyboardInterrupt or SystemExit in an asyncio task, which passes it on. Trio would report it as an
        internal error.
        """
        if isinstance(error, (KeyboardInterrupt, SystemExit)) and isinstance(self._reactor, AsyncioReactor):
            task = asyncio.current_task()
            if task is not None:
                task.add_done_callback(lambda ended: ended.exception())  # requested, and already logged
            raise error

    def _up(self, start: _Start) -> None:
        self.state = "up"
        start.settled.set()

    async def _until_asked(self, start: _Start) -> None:
        try:
            await start.asked.wait()
        finally:
            self.state = "ending"

    def _finish(self, start: _Start) -> None:
        if self.state != "starting":
            self.state = "over"
        else:
            self.state, self._start = "new", None
            start.refusal = start.refusal or UsageError("The supervisor was closed while it started. Start it again.")
        start.settled.set()
        start.over.set()


async def _until_over(start: _Start) -> None:
    """Wait for the end, even if the caller is cancelled. Without a caller, it might stop with the loop."""
    cancelled: BaseException | None = None
    with anyio.CancelScope(shield=not WITHIN.get()):
        while not start.over.is_set():
            try:
                await start.over.wait()
            except anyio.get_cancelled_exc_class() as error:  # asyncio ignores the shield
                if WITHIN.get():
                    raise
                cancelled = error
    if cancelled is not None:
        raise cancelled
