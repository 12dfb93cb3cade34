"""The event loop as the pool needs it: descriptors that call back, one alarm, and waiters. For asyncio and for trio.

Everything in the pool runs in these callbacks, on the loop's own thread, to the end, one at a time: no task for a
frame, no lock, no thread.
"""

import asyncio
import ctypes
import math
import os
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import anyio

from toolcell_sandbox.kernel.syscalls import prepared, syscall

if TYPE_CHECKING:
    import trio

T = TypeVar("T")


class Waiter(Protocol[T]):
    """One result, set once, waited for by one task."""

    def set(self, value: T, *, later: bool = False) -> None:
        """Give the task the value; `later`, so that what is under way comes before it."""
        ...

    def __await__(self) -> Generator[Any, Any, T]: ...


class Task(Protocol):
    """What runs beside the callbacks."""

    async def ended(self) -> None:
        """Wait for its end, also where whoever waits is cancelled."""
        ...


class Reactor(Protocol):
    """Descriptors, an alarm, waiters and tasks on one event loop."""

    def watch(self, fd: int, on_ready: Callable[[], None]) -> None:
        """Call `on_ready` whenever `fd` is readable."""
        ...

    def unwatch(self, fd: int) -> None: ...
    def set_alarm(self, when: float, on_alarm: Callable[[], None]) -> None:
        """Call `on_alarm` at `when` (time.monotonic); math.inf for not at all. Replaces the last one. The first
        takes a descriptor: SandboxError where there is none.
        """
        ...

    def waiter(self) -> "Waiter[Any]": ...
    def task(self, coroutine: Coroutine[Any, Any, None]) -> Task:
        """Run it in a task of its own, with a context of its own, from the next turn of the loop on."""
        ...

    def soon(self, callback: Callable[[], None]) -> None:
        """Call back in the next turn of the loop."""
        ...

    def is_here(self) -> bool:
        """Whether its event loop runs the caller."""
        ...

    def is_over(self) -> bool:
        """Whether its event loop was closed, and calls nobody back any more."""
        ...

    def close(self) -> None: ...


def current_reactor() -> Reactor:
    """A reactor on the event loop that runs now."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return TrioReactor()
    return AsyncioReactor()


class _Alarm:
    """One moment, kept by the kernel (timerfd_create(2)): event loops wait for whole milliseconds, rounded up."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._fd = -1  # made when it is needed for the first time
        self._moment = ctypes.create_string_buffer(_ITIMERSPEC.size)
        self._start: Callable[[], None]  # the timer, at that moment
        self._on_alarm: Callable[[], None] | None = None
        self._closed = False

    def set(self, when: float, on_alarm: Callable[[], None]) -> None:
        if self._closed:
            return
        if self._fd < 0:
            flags = os.O_CLOEXEC | os.O_NONBLOCK
            self._fd = syscall("timerfd_create", time.CLOCK_MONOTONIC, flags, step="make a timer")
            self._start = prepared("timerfd_settime", self._fd, _ABSOLUTE, self._moment, None, step="set a timer")
            self._reactor.watch(self._fd, self._ring)
        moment = 0.0 if when == math.inf else min(max(when, 1e-9), _LATEST)  # 0 is never
        seconds = int(moment)
        self._on_alarm = None if when == math.inf else on_alarm
        _ITIMERSPEC.pack_into(self._moment, 0, 0, 0, seconds, int((moment - seconds) * 1e9))
        self._start()

    def _ring(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # it was set anew after it had rung
        on_alarm, self._on_alarm = self._on_alarm, None
        if on_alarm is not None:
            on_alarm()

    def close(self) -> None:
        self._closed = True
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_ITIMERSPEC = struct.Struct("=4q")  # seconds and nanoseconds between rings, and to the first (timerfd_create(2))
_ABSOLUTE = 1  # TFD_TIMER_ABSTIME (linux/timerfd.h)
_LATEST = 2.0**33  # seconds; the kernel counts nanoseconds in 64 bits


_add_done_callback: Callable[..., None] = asyncio.Future[Any].add_done_callback


class _FutureWaiter(asyncio.Future[Any]):
    """A future whose task goes on at once when it is set in a callback of the reactor: not in the loop's next turn,
    which would look for events before that.
    """

    __slots__ = ("reactor", "resume")

    reactor: "AsyncioReactor"
    resume: tuple[Callable[[Any], object], Context] | None
    """How the task that awaits this is run, and in what."""

    def add_done_callback(self, fn: Callable[[Self], object], /, *, context: Context | None = None) -> None:
        if context is not None:  # as tasks do
            self.resume = fn, context
        _add_done_callback(self, fn, context=context)

    def set(self, value: object, *, later: bool = False) -> None:
        if self.done():
            return
        if self.resume is not None and self.reactor.calling_back and not later:
            self.remove_done_callback(self.resume[0])
            self.reactor.going_on.append(self)
        self.set_result(value)

    def go_on(self) -> None:
        """Run the task that waits for this until it waits for something else."""
        assert self.resume is not None
        wake, context = self.resume
        context.run(wake, self)


class _AsyncioTask(asyncio.Task[None]):
    async def ended(self) -> None:
        with anyio.CancelScope(shield=True):
            await asyncio.wait([self])


def _in_asyncio() -> Context:
    """The context of callbacks. What anyio does in one asks for the kind of loop; with no task to tell, sniffio has to,
    which anyio depends on, or did.
    """
    context = copy_context()
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, "asyncio")
    return context


class AsyncioReactor:
    """On asyncio, all of it is there already: add_reader, call_at, futures."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = _in_asyncio()
        self._watched: set[int] = set()
        self.calling_back = False
        self.going_on: deque[_FutureWaiter] = deque()  # whose tasks run when the callback has ended
        self._alarm = _Alarm(self)

    def watch(self, fd: int, on_ready: Callable[[], None]) -> None:
        self._context.run(self._loop.add_reader, fd, self._call_back, on_ready)
        self._watched.add(fd)

    def _call_back(self, on_ready: Callable[[], None]) -> None:
        self.calling_back = True
        try:
            on_ready()
        finally:
            self.calling_back = False
            try:
                while self.going_on:
                    self.going_on.popleft().go_on()
            finally:  # where a task raised SystemExit, which ends the loop's turn
                while self.going_on:
                    self._loop.call_soon(self.going_on.popleft().go_on)

    def unwatch(self, fd: int) -> None:
        self._watched.discard(fd)
        if not self._loop.is_closed():
            self._loop.remove_reader(fd)

    def set_alarm(self, when: float, on_alarm: Callable[[], None]) -> None:
        self._alarm.set(when, on_alarm)

    def waiter(self) -> Waiter[Any]:
        waiter = _FutureWaiter(loop=self._loop)
        waiter.reactor, waiter.resume = self, None
        return waiter

    def task(self, coroutine: Coroutine[Any, Any, None]) -> Task:
        return _AsyncioTask(coroutine, loop=self._loop)

    def soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback, context=self._context.copy())

    def is_here(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def is_over(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        for fd in list(self._watched):
            self.unwatch(fd)
        self._alarm.close()


class _EventWaiter:
    __slots__ = ("_event", "_value")

    def __init__(self, event: "trio.Event") -> None:
        self._event = event
        self._value: list[object] = []

    def set(self, value: object, *, later: bool = False) -> None:
        if not self._value:
            self._value.append(value)
            self._event.set()

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from self._event.wait().__await__()
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


class TrioReactor:
    """On trio, each descriptor and the alarm has a system task that waits and calls back."""

    def __init__(self) -> None:
        import trio

        self._trio = trio
        self._token = trio.lowlevel.current_trio_token()
        self._context = copy_context()
        self._watched: dict[int, trio.CancelScope] = {}
        self._alarm = _Alarm(self)

    def watch(self, fd: int, on_ready: Callable[[], None]) -> None:
        trio = self._trio
        scope = trio.CancelScope(shield=True)  # trio cancels system tasks at the end of its run, and cells end after it
        self._watched[fd] = scope

        async def wait() -> None:
            with scope:
                while not scope.cancel_called:
                    await trio.lowlevel.wait_readable(fd)
                    if not scope.cancel_called:
                        on_ready()

        trio.lowlevel.spawn_system_task(wait, name=f"toolcell watches fd {fd}", context=self._context.copy())

    def unwatch(self, fd: int) -> None:
        scope = self._watched.pop(fd, None)
        if scope is not None:
            scope.cancel()
            self._trio.lowlevel.notify_closing(fd)

    def set_alarm(self, when: float, on_alarm: Callable[[], None]) -> None:
        self._alarm.set(when, on_alarm)

    def waiter(self) -> Waiter[Any]:
        return _EventWaiter(self._trio.Event())

    def task(self, coroutine: Coroutine[Any, Any, None]) -> Task:
        return _TrioTask(self._trio, coroutine)

    def soon(self, callback: Callable[[], None]) -> None:
        async def run() -> None:
            callback()

        self._trio.lowlevel.spawn_system_task(run, name="toolcell, soon", context=self._context.copy())

    def is_here(self) -> bool:
        try:
            return self._trio.lowlevel.current_trio_token() is self._token
        except RuntimeError:
            return False

    def is_over(self) -> bool:
        return False  # a run of trio ends only after its system tasks

    def close(self) -> None:
        for fd in list(self._watched):
            self.unwatch(fd)
        self._alarm.close()
