"""`SessionLoop`: run work on the event loop of a session, for a caller on any loop or thread.

A session's calls run on the event loop of its supervisor. Agent frameworks run tools elsewhere too: `run_sync` and
`asyncio.run` make loops of their own, and synchronous agents run in threads. Adapters reach the session's loop only
through this module. A caller on another loop waits without blocking its loop. Progress is reported in its task, and the
work has its context variables. If it is cancelled, it waits until the work has ended.
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from contextvars import copy_context
from inspect import isawaitable
from typing import Any, Generic, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from toolcell.dispatch.call_context import OnProgress
from toolcell.errors import UsageError
from toolcell.pool.reactor import Reactor, Task
from toolcell.runtime.core import SessionCore

__all__ = ["SessionLoop"]

T = TypeVar("T")
LOOK_S = 1.0
"""How often a caller that waits looks whether the session's loop was closed: then nothing there ends its work."""
MAX_QUEUED = 1_000
"""Reports of progress that wait for a caller on another loop. Further ones are dropped."""
Progress = tuple[str, float | None]
Work = Callable[[OnProgress | None], Coroutine[Any, Any, T]]
_log = logging.getLogger("toolcell.tool")
_STOPPED = (
    "The session's event loop does not run now. Use the session while it runs, or take toolcell.blocking, which has a "
    "loop of its own."
)


class SessionLoop:
    """The event loop of one session."""

    def __init__(self, core: SessionCore) -> None:
        self._core = core

    async def run(self, work: Work[T], on_progress: OnProgress | None = None) -> T:
        """Run `work(on_progress)` on the session's loop. The caller may be on any loop, where `on_progress` is called.
        Raises UsageError if the session's loop does not run."""
        reactor = self._reactor()
        if reactor.is_here():
            return await work(on_progress)
        return await _Visit(reactor, work).awaited(on_progress)

    def wait(self, work: Work[T], *, instead: str) -> T:
        """Run `work(None)` on the session's loop, and block the caller's thread until it ends. Raises UsageError, with
        the advice `instead`, in the loop's own thread, which would wait for itself."""
        reactor = self._reactor()
        if reactor.is_here():
            raise UsageError(f"This would block the session's event loop, on which its calls run. {instead}")
        return _Visit(reactor, work).result()

    def _reactor(self) -> Reactor:
        reactor = self._core.reactor
        if not reactor.runs():
            raise UsageError(_STOPPED)
        return reactor


class _Visit(Generic[T]):
    """Work on the session's loop, for which a caller elsewhere waits."""

    def __init__(self, reactor: Reactor, work: Work[T]) -> None:
        self._reactor = reactor
        self._work = work
        self._context = copy_context()
        self._report: OnProgress | None = None
        self._done: Future[T] = Future()
        self._scope: anyio.CancelScope | None = None
        self._task: Task | None = None  # event loops only hold weak references to tasks

    def result(self) -> T:
        """Block until the work ends. An exception in the waiting thread, such as KeyboardInterrupt, cancels it."""
        self._start()
        try:
            while not wait([self._done], LOOK_S).done:
                self._look()
        except BaseException:
            self._cancel()
            raise
        return self._done.result()

    async def awaited(self, on_progress: OnProgress | None) -> T:
        """Wait on the caller's loop, and pass on the progress there."""
        here = _caller_loop()
        send, receive = anyio.create_memory_object_stream[Progress](MAX_QUEUED)

        def put(message: str, fraction: float | None) -> None:
            with suppress(anyio.WouldBlock):  # the caller is slower than the tool, and later progress supersedes it
                send.send_nowait((message, fraction))

        def report(message: str, fraction: float | None) -> None:
            here(put, message, fraction)

        self._report = None if on_progress is None else report

        def ended(_: object) -> None:
            with suppress(RuntimeError):  # the caller's loop is closed, so nobody waits
                here(send.close)

        self._done.add_done_callback(ended)
        self._start()
        with receive:
            try:
                while (told := await self._next(receive)) is not None:
                    await _tell(on_progress, *told)
            except anyio.get_cancelled_exc_class():
                self._cancel()
                with anyio.CancelScope(shield=True):
                    while await self._next(receive) is not None:
                        pass
                raise
        return self._done.result()

    async def _next(self, receive: MemoryObjectReceiveStream[Progress]) -> Progress | None:
        """The next progress. None if the work has ended."""
        while True:
            with anyio.move_on_after(LOOK_S):
                try:
                    return await receive.receive()
                except anyio.EndOfStream:
                    return None
            self._look()

    def _start(self) -> None:
        try:
            self._reactor.from_thread(self._begin)
        except RuntimeError:  # the session's loop was closed meanwhile
            raise UsageError(_STOPPED) from None

    def _look(self) -> None:
        if self._reactor.is_over():
            with suppress(InvalidStateError):  # it has ended before
                self._done.set_exception(UsageError(_STOPPED))

    # -- on the session's loop ----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._scope = anyio.CancelScope()
        sniffio = sys.modules.get("sniffio")
        if sniffio is not None:  # else anyio would read the caller's kind of loop from the copied context
            self._context.run(sniffio.current_async_library_cvar.set, None)
        self._task = self._context.run(self._reactor.task, self._run(self._scope))

    async def _run(self, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                self._done.set_result(await self._work(self._report))
            if scope.cancelled_caught:
                self._done.cancel()
        except Exception as error:
            self._done.set_exception(error)
        finally:
            if not self._done.done():
                self._done.set_exception(UsageError(_STOPPED))

    def _cancel(self) -> None:
        """Cancel the work. May be called on any thread."""
        with suppress(RuntimeError):  # the session's loop is closed, and the work has ended with it
            self._reactor.from_thread(self._cancel_here)

    def _cancel_here(self) -> None:
        assert self._scope is not None  # `_begin` has run
        self._scope.cancel()


def _caller_loop() -> Callable[..., object]:
    """A function that calls another one on the loop that runs now, from any thread."""
    try:
        return asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:
        import trio

        return trio.lowlevel.current_trio_token().run_sync_soon


async def _tell(on_progress: OnProgress | None, message: str, fraction: float | None) -> None:
    """Report progress to the caller. As on the session's loop, an exception of the callback is only logged."""
    try:
        answer: Awaitable[None] | None = None if on_progress is None else on_progress(message, fraction)
        if isawaitable(answer):
            await answer
    except Exception:
        _log.exception("on_progress raised")
