"""The event loop as the pool needs it: callbacks for descriptors, one alarm, and waiters. For asyncio and for trio.

Everything in the pool runs in these callbacks, one at a time, on the loop's thread. So a frame needs no task, and the
pool has no lock and no thread.

Every callback belongs to an owner: a cell, a zygote or the pool. `FaultHandler` counts and logs an exception of a
callback, and ends the owner. So no other call waits in vain, and the event loop never sees the exception.
"""

import asyncio
import ctypes
import logging
import math
import os
import resource
import select
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

import anyio

from toolcell.wire import forks
from toolcell.wire.switches import is_on
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.syscalls import prepared, syscall

if TYPE_CHECKING:
    import trio

T = TypeVar("T")
WATCH_AGAIN_S = 0.1  # after the kernel has refused to watch a descriptor
_log = logging.getLogger("toolcell.pool")


class Owner(Protocol):
    """The object to which a callback belongs."""

    def on_fault(self, error: Exception) -> None:
        """End it, because its callback has raised this. Whoever waits for it is told."""
        ...


class FaultHandler:
    """Handles the exceptions of callbacks, and counts them."""

    faults = 0

    def fault(self, owner: Owner | None, error: Exception) -> None:
        """End the owner of a callback that has raised. Without an owner, the exception is only counted and logged."""
        self.faults += 1
        _log.error("a callback of %r failed", owner, exc_info=error)
        if owner is None:
            return
        try:
            owner.on_fault(error)
        except Exception as further:
            _log.error("%r could not be ended", owner, exc_info=further)

    def guarded(self, owner: Owner | None, callback: Callable[..., object], *args: object) -> None:
        """Run a callback, or a step of one that belongs to another owner."""
        try:
            callback(*args)
        except Exception as error:
            self.fault(owner, error)


def release(close: Callable[..., object], *args: object) -> None:
    """Close something. The kernel releases a descriptor even if close(2) returns an error, such as EINTR or EIO."""
    try:
        close(*args)
    except OSError as error:
        _log.warning("a descriptor was closed with an error: %s", error)


class Waiter(Protocol[T]):
    """A result that is set once and awaited by one task."""

    def set(self, value: T, *, later: bool = False) -> None:
        """Give the task the value: at once, or `later`, after the work that is under way."""
        ...

    def fail(self, error: Exception) -> None:
        """Raise the error in the task, unless it was given a value."""
        ...

    def __await__(self) -> Generator[Any, Any, T]: ...


class Task(Protocol):
    """A task that runs beside the callbacks."""

    async def ended(self) -> None:
        """Wait for the task's end, even if the waiting task is cancelled."""
        ...


class Reactor(Protocol):
    """Descriptors, an alarm, waiters and tasks on one event loop."""

    faults: int
    """The number of exceptions that callbacks have raised."""
    thread: int
    """The identifier of the event loop's thread."""

    def fault(self, owner: Owner | None, error: Exception) -> None: ...
    def guarded(self, owner: Owner | None, callback: Callable[..., object], *args: object) -> None: ...
    def watch(self, fd: int, on_ready: Callable[[], None], owner: Owner | None = None) -> None:
        """Call `on_ready`, a callback of `owner`, whenever `fd` is readable."""
        ...

    def unwatch(self, fd: int) -> None: ...
    def alarm(self, on_alarm: Callable[[], None]) -> Callable[[float], None]:
        """The reactor's one alarm. Returns a function that sets it to a moment (time.monotonic seconds), at which
        `on_alarm` is called once; math.inf turns it off. Each setting replaces the one before.

        The first setting takes a descriptor. It raises SandboxError if none is left.
        """
        ...

    def waiter(self) -> "Waiter[Any]": ...
    def task(self, coroutine: Coroutine[Any, Any, None]) -> Task:
        """Run the coroutine in its own task and context, from the next turn of the loop."""
        ...

    def soon(self, callback: Callable[[], None], owner: Owner | None = None) -> None:
        """Run `callback` in the next turn of the loop."""
        ...

    def stay_awake(self, until: float) -> None:
        """Poll instead of sleeping, until then (time.monotonic seconds) or until a waiter is set. A loop that cannot
        poll ignores this."""
        ...

    def from_thread(self, callback: Callable[[], None]) -> None:
        """Run `callback` soon on the loop's thread. May be called on any thread."""
        ...

    def is_here(self) -> bool:
        """Whether the caller runs on this event loop."""
        ...

    def runs(self) -> bool:
        """Whether the event loop runs now. A stopped asyncio loop may run again."""
        ...

    def is_over(self) -> bool:
        """Whether the event loop is closed, so that no callback runs any more."""
        ...

    def close(self) -> None: ...


def current_reactor() -> Reactor:
    """A reactor on the event loop that runs now. Raises UsageError on a loop that was inherited by a fork."""
    forks.check_loop()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        try:
            return TrioReactor()
        except (ImportError, RuntimeError):
            forks.check_loop(is_none=True)
            raise
    return AsyncioReactor()


class _Alarm:
    """One kernel timer (timerfd_create(2)). Event loops round their timeouts up to whole milliseconds."""

    on_alarm: Callable[[], None]

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._fd = -1  # created at the first use
        self._moment = ctypes.create_string_buffer(_ITIMERSPEC.size)
        self._start: Callable[[], None]  # starts the timer for that moment
        self._is_set = False
        self.closed = False

    def set(self, when: float) -> None:
        if self.closed:
            return
        if self._fd < 0:
            flags = os.O_CLOEXEC | os.O_NONBLOCK
            self._fd = syscall("timerfd_create", time.CLOCK_MONOTONIC, flags, step="make a timer")
            self._start = prepared("timerfd_settime", self._fd, _ABSOLUTE, self._moment, None, step="set a timer")
            self._reactor.watch(self._fd, self._ring)
        moment = 0.0 if when == math.inf else min(max(when, 1e-9), _LATEST)  # 0 disarms the timer
        seconds = int(moment)
        self._is_set = when != math.inf
        _ITIMERSPEC.pack_into(self._moment, 0, 0, 0, seconds, int((moment - seconds) * 1e9))
        try:
            self._start()
        except (SandboxError, OSError) as error:  # a deadline must not be lost: try again until it can be set
            _log.error("a timer could not be set: %s", error)
            self._reactor.soon(self._set_again)

    def _set_again(self) -> None:
        if self._is_set and not self.closed:
            self._reactor.guarded(None, self.on_alarm)  # early: it finds what is due, and sets the next alarm

    def _ring(self) -> None:
        if self.closed:
            return
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # set again after it had expired
        except OSError as error:  # it has expired
            _log.error("a timer could not be read: %s", error)
        if self._is_set:
            self._is_set = False
            self.on_alarm()

    def close(self) -> None:
        self.closed = True
        if self._fd >= 0:
            release(os.close, self._fd)
            self._fd = -1


_ITIMERSPEC = struct.Struct("=4q")  # interval and first expiration, each in s and ns (timerfd_create(2))
_ABSOLUTE = 1  # TFD_TIMER_ABSTIME (linux/timerfd.h)
_AT_ONCE = is_on("at_once")
_LATEST = 2.0**33  # seconds; the kernel counts nanoseconds in 64 bits


_add_done_callback: Callable[..., None] = asyncio.Future[Any].add_done_callback


class _FutureWaiter(asyncio.Future[Any]):
    """A future whose task resumes in the callback of the reactor that sets it: the trick `at_once`.

    A plain future resumes its task in the next turn of the loop, which first polls for events and runs what is ready.
    This one takes the task's wake-up back before it sets the result, and the reactor runs it when its callback has
    ended, in the task's context. That is what the loop would do a turn later. It relies on two facts of asyncio that
    are not documented: a task waits by one `add_done_callback` that has a context, and its wake-up may run in any
    callback of the loop in which no task runs. `tests/pool/test_reactor.py` holds them on each Python that is
    supported.
    """

    __slots__ = ("reactor", "resume")

    reactor: "AsyncioReactor"
    resume: tuple[Callable[[Any], object], Context] | None
    """The callback that resumes the awaiting task, and its context."""

    def add_done_callback(self, fn: Callable[[Self], object], /, *, context: Context | None = None) -> None:
        if context is not None:  # as asyncio tasks pass it
            self.resume = fn, context
        _add_done_callback(self, fn, context=context)

    def set(self, value: object, *, later: bool = False) -> None:
        if self.done():
            return
        self.reactor.awake.until = 0.0
        if self.resume is not None and self.reactor.calling_back and _AT_ONCE and not later:
            self.remove_done_callback(self.resume[0])
            self.reactor.going_on.append(self)
        self.set_result(value)

    def fail(self, error: Exception) -> None:
        if not self.done():
            self.set_exception(error)

    def go_on(self) -> None:
        """Run the awaiting task until it awaits something else."""
        assert self.resume is not None
        wake, context = self.resume
        context.run(wake, self)


QUICK_S: Final = 0.0002
"""The longest that a loop is kept awake for one answer, in seconds. A kept process that does next to nothing answers in
a quarter of that. The loop stays awake only for a process that answered its last call within this time."""
IN_A_ROW_S: Final = 0.001
"""A loop is kept awake only for a call that begins within this time after the last one, in seconds."""
_LOOK_S: Final = 0.05
MOST_SWITCHES: Final = 50.0
"""A core is contended if the loop's thread is preempted more often than so many times in a second, counted every
`_LOOK_S`. Then the loop sleeps. Polling would take time from other programs, and the kernel favours threads that slept.
"""
IS_ON: Final = is_on("stay_awake")
_now = time.monotonic


class Awake:
    """Keeps an asyncio loop awake: while the answer of a kept process is about to arrive, it polls instead of sleeping.
    A process that sleeps for some microseconds pays more for falling asleep and waking up than for the wait, and its
    next instructions run slowly, because they are no longer in the core's caches.

    It stays awake `until` a moment (time.monotonic seconds). The loop serves all else meanwhile: this only adds turns
    to it. With a single core nothing is done, because the answer has to come from that core.
    """

    __slots__ = ("_is_calm", "_is_turning", "_look_at", "_looked_at", "_loop", "_switches", "until")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.until = 0.0
        self._loop = loop
        self._is_turning = False
        self._is_calm = False
        self._look_at = self._looked_at = 0.0
        self._switches = 0
        if not IS_ON or len(os.sched_getaffinity(0)) == 1:
            self._look_at = math.inf

    def stay(self, until: float) -> None:
        """Keep the loop awake until then, unless other programs want the core. The waiter sets `until` to 0 when
        the answer arrives."""
        if until > self._look_at:
            self._look(until)
        if self._is_calm:
            self.until = until
            if not self._is_turning:
                self._is_turning = True
                self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turning = _now() < self.until
        if self._is_turning:
            self._loop.call_soon(self._turn)

    def _look(self, now: float) -> None:
        """Look how often the kernel has taken the core from this thread since the last look (getrusage(2))."""
        switches = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
        self._is_calm = switches - self._switches <= MOST_SWITCHES * (now - self._looked_at)
        self._switches, self._looked_at, self._look_at = switches, now, now + _LOOK_S


class _AsyncioTask(asyncio.Task[None]):
    async def ended(self) -> None:
        with anyio.CancelScope(shield=True):
            await asyncio.wait([self])


def _in_asyncio() -> Context:
    """The context of callbacks. anyio asks sniffio for the kind of loop if there is no current task, so sniffio's
    variable is set here. Newer versions of anyio do not depend on sniffio.
    """
    context = copy_context()
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, "asyncio")
    return context


class AsyncioReactor(FaultHandler):
    """The reactor on asyncio, by its own means: add_reader, call_at, futures."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self._context = _in_asyncio()
        self._watched: set[int] = set()
        self.awake = Awake(self._loop)
        self.calling_back = False
        self.going_on: deque[_FutureWaiter] = deque()  # their tasks run when the callback has ended
        self._alarm = _Alarm(self)
        self.stay_awake = self.awake.stay  # without a function between: each call of a kept process calls it
        forks.register(self)

    def watch(self, fd: int, on_ready: Callable[[], None], owner: Owner | None = None) -> None:
        self._context.run(self._loop.add_reader, fd, self._call_back, on_ready, owner)
        self._watched.add(fd)

    def _call_back(self, on_ready: Callable[[], None], owner: Owner | None) -> None:
        self.calling_back = True
        try:
            on_ready()
        except Exception as error:
            self.fault(owner, error)
        finally:
            self.calling_back = False
            try:
                while self.going_on:
                    self.going_on.popleft().go_on()
            finally:  # also if a task raises SystemExit, which ends the loop's turn
                while self.going_on:
                    self._loop.call_soon(self.going_on.popleft().go_on)

    def unwatch(self, fd: int) -> None:
        self._watched.discard(fd)
        if not self._loop.is_closed():
            self._loop.remove_reader(fd)

    def alarm(self, on_alarm: Callable[[], None]) -> Callable[[float], None]:
        self._alarm.on_alarm = on_alarm
        return self._alarm.set

    def waiter(self) -> Waiter[Any]:
        waiter = _FutureWaiter(loop=self._loop)
        waiter.reactor, waiter.resume = self, None
        return waiter

    def task(self, coroutine: Coroutine[Any, Any, None]) -> Task:
        return _AsyncioTask(coroutine, loop=self._loop)

    def soon(self, callback: Callable[[], None], owner: Owner | None = None) -> None:
        self._loop.call_soon(self.guarded, owner, callback, context=self._context.copy())

    def from_thread(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(self.guarded, None, callback, context=self._context.copy())

    def is_here(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def runs(self) -> bool:
        return self._loop.is_running()

    def is_over(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        for fd in list(self._watched):
            self.unwatch(fd)
        self._alarm.close()

    def let_go(self) -> None:
        """In a fork, take the supervisor's tasks off the loop, which may still run to its end there."""
        if self._alarm.closed:
            return
        self._alarm.close()
        self._watched.clear()
        for task in asyncio.all_tasks(self._loop):
            if isinstance(task, _AsyncioTask):
                asyncio._unregister_task(task)  # documented: asyncio, "Extending"
                forks.keep(task)
        forks.leave_loop(self.is_here)
        loop: Any = self._loop
        if loop.is_closed():
            return
        if hasattr(loop, "_get_backend_id"):  # uvloop
            _separate(loop._get_backend_id())
        elif hasattr(loop, "_selector") and hasattr(loop._selector, "fileno"):
            _separate(loop._selector.fileno(), loop._ssock, loop._csock)


class _EventWaiter:
    __slots__ = ("_error", "_event", "_value")

    def __init__(self, event: "trio.Event") -> None:
        self._event = event
        self._value: list[object] = []
        self._error: Exception | None = None

    def set(self, value: object, *, later: bool = False) -> None:
        if not self._value:
            self._value.append(value)
            self._event.set()

    def fail(self, error: Exception) -> None:
        self._error = None if self._value else error
        self._event.set()

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from self._event.wait().__await__()
        if self._error is not None:
            raise self._error
        return self._value[0]


class _TrioTask:
    def __init__(self, trio: ModuleType, coroutine: Coroutine[Any, Any, None]) -> None:
        self._ended = anyio.Event()
        trio.lowlevel.spawn_system_task(self._run, coroutine, name="toolcell, task", context=copy_context())

    async def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        finally:
            self._ended.set()

    async def ended(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._ended.wait()


class TrioReactor(FaultHandler):
    """The reactor on trio. A system task for each descriptor, and one for the alarm, waits and calls back."""

    def __init__(self) -> None:
        import trio

        self._trio = trio
        self.thread = threading.get_ident()
        self._token = trio.lowlevel.current_trio_token()
        self._context = copy_context()
        self._watched: dict[int, trio.CancelScope] = {}
        self._alarm = _Alarm(self)
        forks.register(self)

    def watch(self, fd: int, on_ready: Callable[[], None], owner: Owner | None = None) -> None:
        trio = self._trio
        scope = trio.CancelScope(shield=True)  # trio cancels system tasks at the end of its run; cells end later
        self._watched[fd] = scope

        async def wait() -> None:
            with scope:
                while not scope.cancel_called:
                    try:
                        await trio.lowlevel.wait_readable(fd)
                    except OSError as error:  # an exception of a system task would end the whole run
                        self.fault(owner, error)
                        await trio.sleep(WATCH_AGAIN_S)
                    if not scope.cancel_called:
                        self.guarded(owner, on_ready)

        trio.lowlevel.spawn_system_task(wait, name=f"toolcell watches fd {fd}", context=self._context.copy())

    def unwatch(self, fd: int) -> None:
        scope = self._watched.pop(fd, None)
        if scope is not None:
            scope.cancel()
            self._trio.lowlevel.notify_closing(fd)

    def alarm(self, on_alarm: Callable[[], None]) -> Callable[[float], None]:
        self._alarm.on_alarm = on_alarm
        return self._alarm.set

    def waiter(self) -> Waiter[Any]:
        return _EventWaiter(self._trio.Event())

    def task(self, coroutine: Coroutine[Any, Any, None]) -> Task:
        return _TrioTask(self._trio, coroutine)

    def soon(self, callback: Callable[[], None], owner: Owner | None = None) -> None:
        async def run() -> None:
            self.guarded(owner, callback)

        self._trio.lowlevel.spawn_system_task(run, name="toolcell, soon", context=self._context.copy())

    def stay_awake(self, until: float) -> None:
        pass  # trio has no turn without a task, which would cost more than it gains

    def from_thread(self, callback: Callable[[], None]) -> None:
        self._token.run_sync_soon(self.guarded, None, callback)

    def is_here(self) -> bool:
        try:
            return self._trio.lowlevel.current_trio_token() is self._token
        except RuntimeError:
            return False

    def runs(self) -> bool:
        return True  # as long as there is a supervisor

    def is_over(self) -> bool:
        return False  # trio's run ends after its system tasks

    def close(self) -> None:
        for fd in list(self._watched):
            self.unwatch(fd)
        self._alarm.close()

    def let_go(self) -> None:
        """In a fork, end the watching tasks, for which the run would wait if it goes on to its end there."""
        if self._alarm.closed:
            return
        self._alarm.close()
        forks.leave_loop(self.is_here)
        if self.is_here():
            from trio._core._run import GLOBAL_RUN_CONTEXT

            runner: Any = GLOBAL_RUN_CONTEXT.runner
            waker = runner.entry_queue.wakeup
            _separate(runner.io_manager._epoll.fileno(), waker.wakeup_sock, waker.write_sock)
            for scope in self._watched.values():
                scope.cancel()
        self._watched.clear()


def _separate(epoll: int, reader: socket.socket | None = None, writer: socket.socket | None = None) -> None:
    """In a fork, replace the descriptors with which an event loop waits and is woken. The parent's loop shares them: it
    would miss what the child hears, takes or unregisters."""
    with select.epoll() as own:
        if reader is not None and writer is not None:
            for theirs, mine in zip((reader, writer), socket.socketpair(), strict=True):
                with mine:
                    mine.setblocking(False)
                    os.dup2(mine.fileno(), theirs.fileno(), inheritable=False)
            own.register(reader.fileno(), select.EPOLLIN)
        os.dup2(own.fileno(), epoll, inheritable=False)
