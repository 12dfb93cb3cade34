"""The same API without `await`, for programs without an event loop. It runs an event loop in a thread.

Each object here has the object of the async API as its `_inner`. `as_in` makes a method of the async one: it has the
same parameters, runs the method on the event loop and waits for its result, or its twin of this module. What both have
in common, the properties of a session, is a base class. So the two cannot differ by an option, and a new option or
method of the async API takes at most one line here.

An exception in the waiting thread, such as KeyboardInterrupt, cancels the method. Callbacks may be plain or async, as
in the async API: they run on the event loop, except for a plain `on_output`, which runs in another thread, so that it
may be slow.
"""

import atexit
import inspect
import threading
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, overload

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from toolcell.dispatch.callbacks import in_callers_context
from toolcell.pool.interface import SupervisorStatus
from toolcell.rules.options import parameters_of, show_parameters
from toolcell.rules.policy import Policy
from toolcell.sessions.session_result import SessionResult
from toolcell.store.approvals import Approvals
from toolcell.store.journal import Journal
from toolcell.wire import forks
from toolcell_tools.result import ToolResult

from . import agents
from . import session as _session
from . import supervisor as _supervisor
from .backends.threads import in_thread
from .errors import UsageError
from .runtime.tasks import CallTask, TaskStatus
from .telemetry import Metrics

__all__ = ["Session", "Supervisor", "preload_memory"]

P = ParamSpec("P")
A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


@overload
def as_in(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], /) -> Callable[Concatenate[Any, P], T]: ...
@overload
def as_in(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, A] | A], twin: Callable[[A, Any], B], /
) -> Callable[Concatenate[Any, P], B]: ...
def as_in(
    method: Callable[..., Any], twin: Callable[[Any, Any], Any] | None = None, /
) -> Callable[Concatenate[Any, P], Any]:
    """The method of a blocking object that runs `method` of the async object on the event loop. `twin` makes the object
    of this module that stands for the result."""

    @wraps(method)
    def waiting(self: Any, *args: Any, **values: Any) -> Any:
        portal: BlockingPortal = self._running()
        if callable(values.get("on_output")):
            values["on_output"] = _in_a_thread(values["on_output"])
        future = portal.start_task_soon(partial(method, self._inner, *args, **values))
        try:
            result = future.result()
        except BaseException:
            future.cancel()
            raise
        return result if twin is None else twin(result, self)

    waiting.__annotations__ = {}  # the method's own, unless a twin returns another type
    if twin is not None and twin is not _same:
        waiting.__annotations__["return"] = inspect.signature(twin).return_annotation
    shown: Callable[..., Any] = waiting
    return show_parameters(shown, method)


def _in_a_thread(on_output: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """The callback, called in a worker thread if it is plain."""
    if inspect.iscoroutinefunction(on_output):
        return on_output
    printed = in_callers_context(on_output)

    async def hear(stream: Any, text: str) -> None:
        answer = await in_thread(partial(printed, stream, text))
        if inspect.isawaitable(answer):
            await answer

    return hear


def _same(result: T, _of: Any) -> T:
    return result


def _session_of(inner: _session.Session, of: Any) -> "Session":
    return Session(inner, of._running())


def _task_of(inner: CallTask, of: Any) -> "BlockingTask":
    return BlockingTask(inner, of._running)


class Session(_session.SessionProperties):
    """A blocking session. Made by `Supervisor.open_session` and `Session.open_child`."""

    def __init__(self, inner: _session.Session, portal: BlockingPortal) -> None:
        super().__init__(_session.core_of(inner))
        self._inner = inner
        self._portal = portal

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"

    @property
    def parent(self) -> "Session | None":
        return None if self._inner.parent is None else Session(self._inner.parent, self._portal)

    call = as_in(_session.Session.call)
    call_again = as_in(_session.Session.call_again)
    call_many = as_in(_session.Session.call_many)
    retry = as_in(_session.Session.retry)
    start = as_in(_session.Session.start, _task_of)
    open_child = as_in(_session.Session.open_child, _session_of)
    allow_urls = as_in(_session.Session.allow_urls, _same)
    explain = as_in(_session.Session.explain)
    tools = as_in(_session.Session.tools)
    bring_back = as_in(_session.Session.bring_back)
    suspend = as_in(_session.Session.suspend)
    resume = as_in(_session.Session.resume)
    _close = as_in(_session.Session.close)

    @parameters_of(_session.Session.close)
    def close(self, **options: Any) -> SessionResult:
        """As `toolcell.Session.close`. A session that has ended has its result after the supervisor's end too."""
        return self._core.result or self._close(**options)

    def _set(self, setter: Callable[[Any], None], value: Any) -> None:
        self._running().call(super()._set, setter, value)

    def _running(self) -> BlockingPortal:
        """The portal to the event loop. Raises UsageError if the supervisor is not running."""
        if self._core.reactor.is_here():
            raise UsageError(
                "This would block the event loop of the blocking supervisor, on which it was called. Call it in "
                "another thread: await asyncio.to_thread(…)."
            )
        return self._portal


class BlockingTask:
    """A task of a blocking session: `toolcell.CallTask` without `await`."""

    def __init__(self, inner: CallTask, running: Callable[[], BlockingPortal]) -> None:
        self._inner = inner
        self._running = running

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def session_id(self) -> str:
        return self._inner.session_id

    @property
    def call_id(self) -> str:
        return self._inner.call_id

    @property
    def status(self) -> TaskStatus:
        return self._inner.status

    _result = as_in(CallTask.result)
    _cancel = as_in(CallTask.cancel, _same)

    def result(self) -> ToolResult:
        """As `toolcell.CallTask.result`."""
        return self._inner.known_result or self._result()

    def cancel(self) -> None:
        """As `toolcell.CallTask.cancel`."""
        if self._inner.known_result is None:
            self._cancel()


class Supervisor(forks.OfOneProcess):
    """A blocking supervisor: a context manager with the parameters of `toolcell.Supervisor`. It is closed when the
    program exits.
    """

    @parameters_of(_supervisor.Supervisor.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        self._inner = _supervisor.Supervisor(*args, **options)
        self._turn = threading.Lock()  # held during start and close
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._loop_thread = 0
        forks.register(self)

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"

    @property
    def journal(self) -> Journal:
        return self._inner.journal

    @property
    def approvals(self) -> Approvals:
        return self._inner.approvals

    @property
    def policy(self) -> Policy:
        return self._inner.policy

    @property
    def metrics(self) -> Metrics:
        return self._inner.metrics

    def start(self) -> None:
        """As `toolcell.Supervisor.start`, from any thread. It starts an event loop in a thread, and the supervisor on
        it.
        """
        with self._turn:
            if self._portal is not None:
                return
            with ExitStack() as stack:
                stack.callback(self._hear_why)
                portal = stack.enter_context(start_blocking_portal(name="toolcell"))
                portal.call(self._inner.start)
                stack.callback(self._end, portal)
                self._loop_thread = portal.call(threading.get_ident)
                self._stack = stack.pop_all()
            self._portal = portal
            atexit.register(self.close)

    def close(self) -> None:
        """As `toolcell.Supervisor.aclose`, from any thread except the loop's. It ends the supervisor, then its event
        loop.
        """
        if threading.get_ident() == self._loop_thread:
            raise UsageError(
                "A callback of the supervisor cannot close it, because the close waits for the callback. Close it in "
                "another thread."
            )
        with self._turn:
            self._portal, self._loop_thread = None, 0
            atexit.unregister(self.close)
            self._stack.close()

    aclose = close  # its name in `toolcell.Supervisor`

    def _end(self, portal: BlockingPortal) -> None:
        try:
            portal.call(self._inner.aclose)
        except RuntimeError:  # the loop is ending already, for example after SystemExit in a backend
            if not _supervisor.runtime_of(self._inner).life.is_left_open:
                raise

    def _hear_why(self) -> None:
        """If the loop ended first, raise the reason for the supervisor's end."""
        if _supervisor.runtime_of(self._inner).life.is_left_open:
            anyio.run(self._inner.aclose)

    def let_go(self) -> None:
        """In a fork of the program, forget the event loop, whose thread is not there."""
        forks.keep(self._stack)  # to leave it would wait for the loop
        self._turn, self._stack = threading.Lock(), ExitStack()
        self._portal, self._loop_thread = None, 0

    if not TYPE_CHECKING:  # a type checker knows that there is no such method

        def __aenter__(self):
            raise UsageError(
                "This supervisor needs `with Supervisor(…) as supervisor:`. In an async function, use "
                "toolcell.Supervisor."
            )

        __aexit__ = __aenter__  # `async with` looks for both

    def __enter__(self) -> Self:
        if self._portal is not None:
            raise UsageError("The supervisor has been entered already. Make another one.")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    open_session = as_in(_supervisor.Supervisor.open_session, _session_of)
    resume_session = as_in(_supervisor.Supervisor.resume_session, _session_of)
    suspended_sessions = as_in(_supervisor.Supervisor.suspended_sessions, _same)
    task = as_in(_supervisor.Supervisor.task, _task_of)

    def status(self) -> SupervisorStatus:
        """As `toolcell.Supervisor.status`."""
        return self._inner.status()

    def nodes(self) -> list[dict[str, Any]]:
        """As `toolcell.Supervisor.nodes`."""
        return self._inner.nodes()

    def _running(self) -> BlockingPortal:
        if self._portal is None:
            if (life := _supervisor.runtime_of(self._inner).life).is_inherited:
                raise life.why_not()
            raise UsageError(
                "The supervisor is not running. Start it first: with Supervisor(…) as supervisor, or start()."
            )
        return self._portal


_preload_memory = as_in(agents.preload_memory)


@parameters_of(agents.preload_memory)
def preload_memory(session: Session, *args: Any, **options: Any) -> str:
    """As `toolcell.preload_memory`, for a blocking session."""
    return _preload_memory(session, *args, **options)
