"""A cell's descriptors: five channels and a few others, in one epoll instance (epoll(7)).

The event loop watches only that epoll descriptor. A wake-up costs one more system call, however many descriptors are
ready.
"""

import logging
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from toolcell.pool.deadlines import Deadlines
from toolcell.pool.reactor import Owner, Reactor, release
from toolcell.pool.run import Run
from toolcell.wire import forks
from toolcell.wire.frames import Buffer
from toolcell.wire.pipes import widen

_log = logging.getLogger("toolcell.pool")
ACCEPT_AGAIN_S = 0.1
STALE_CONNECTIONS = 256  # above the listening socket's backlog
AT_ONCE = 16  # a flood must not block the loop
DESCRIPTORS = 8  # events for one epoll_wait, of which there are at most seven; each wait allocates memory for them
IOV_MAX = 64


class Channels:
    """The control socket and the pipes for calls, frames, stdout and stderr. Our ends are non-blocking and
    close-on-exec; the other ends go to the zygote. Handlers are called in the order in which they were added.

    `owner` is the cell, which ends if a handler raises. The constructor raises OSError if no descriptor is left.
    """

    def __init__(self, reactor: Reactor, owner: Owner) -> None:
        with ExitStack() as undo:  # if descriptors run out half-way
            self.control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            undo.callback(self.control.close)
            undo.callback(control.close)
            pipes: list[tuple[int, int]] = []
            for _ in range(4):
                pipes.append(os.pipe2(os.O_CLOEXEC))
                for fd in pipes[-1]:
                    undo.callback(os.close, fd)
            self._epoll = select.epoll()
            undo.callback(self._epoll.close)
            (calls, self.calls), (self.frames, frames), (self.stdout, out), (self.stderr, err) = pipes
            self.control.setblocking(False)
            for fd in (self.calls, self.frames, self.stdout, self.stderr):
                os.set_blocking(fd, False)
            reactor.watch(self._epoll.fileno(), self.look, owner)
            undo.pop_all()
        self._theirs = [control.detach(), calls, frames, out, err]
        self._handlers: dict[int, Callable[[], object]] = {}
        self._watched: set[int] = set()  # the descriptors that are read at present
        self._reactor = reactor
        self._owner = owner
        self.to_call = Outbox(self.calls, self._want_room_for_calls, pipe=True)
        self.to_init = Outbox(self.control.fileno(), self._want_room_for_control)
        self._poll: Callable[[int, int], list[tuple[int, int]]] = self._epoll.poll
        forks.register(self)

    @property
    def theirs(self) -> Sequence[int]:
        """The descriptors for the cell, in the order that the zygote expects: control, in, out, stdout, stderr."""
        return self._theirs

    def close_child_ends(self) -> None:
        """Close our copies of `theirs`, so that the cell's death closes each pipe."""
        theirs, self._theirs = self._theirs, []
        for fd in theirs:
            release(os.close, fd)

    # -- reading ------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Call the handlers of all ready descriptors. The event loop calls this, and code that cannot wait for it."""
        try:
            events = self._poll(0, DESCRIPTORS)
            if len(events) == 1:
                self._handlers[events[0][0]]()
            elif events:
                ready = {fd for fd, _event in events}
                for fd, handler in list(self._handlers.items()):
                    if fd in ready and not self._epoll.closed:
                        handler()
        except Exception as error:  # here too, because not only the event loop calls this
            self._reactor.fault(self._owner, error)

    def ready(self) -> set[int]:
        """The descriptors that are ready now. This is cheaper than a BlockingIOError for each empty pipe."""
        return {fd for fd, _event in self._poll(0, DESCRIPTORS)}

    def listen(
        self,
        on_stdout: Callable[[], object],
        on_stderr: Callable[[], object],
        on_frames: Callable[[], object],
        on_control: Callable[[], object],
    ) -> None:
        """Set the handlers. Output is handled first, then frames, then control, then other watched descriptors."""
        self.watch(self.stdout, on_stdout)
        self.watch(self.stderr, on_stderr)
        self.watch(self.frames, on_frames)
        self.watch(self.control.fileno(), on_control)
        self._handlers[self.calls] = self.to_call.flush  # watched only while the pipe is full

    def watch(self, fd: int, handler: Callable[[], object]) -> None:
        """Call `handler` whenever `fd` is readable."""
        self._epoll.register(fd, select.EPOLLIN)
        self._handlers[fd] = handler
        self._watched.add(fd)

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor, for example when its other end is closed."""
        self._handlers.pop(fd, None)
        if fd in self._watched:
            self._watched.remove(fd)
            self._epoll.unregister(fd)

    def is_watched(self, fd: int) -> bool:
        return fd in self._watched

    @property
    def is_paused(self) -> bool:
        """Whether reading of the call's frames and output is paused."""
        return self.frames in self._handlers and self.frames not in self._watched

    def pause(self) -> None:
        """Stop reading the call's frames and output, until `resume`."""
        if self.frames in self._handlers:
            for fd in (self.frames, self.stdout, self.stderr):
                if fd in self._watched:
                    self._watched.remove(fd)
                    self._epoll.unregister(fd)

    def resume(self) -> None:
        """Read again, from all pipes whose other ends are open."""
        for fd in (self.frames, self.stdout, self.stderr):
            if fd in self._handlers and fd not in self._watched:
                self._epoll.register(fd, select.EPOLLIN)
                self._watched.add(fd)

    # -- writing ------------------------------------------------------------------------------------------------------

    def _want_room_for_calls(self, want: bool) -> None:
        if want:
            self._epoll.register(self.calls, select.EPOLLOUT)
        else:
            self._epoll.unregister(self.calls)

    def _want_room_for_control(self, want: bool) -> None:
        self._epoll.modify(self.control.fileno(), select.EPOLLIN | (select.EPOLLOUT if want else 0))

    # -- the end ------------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._epoll.closed

    def close_calls(self) -> None:
        """Close the pipe of calls. A kept process reads its end as the request to stop."""
        if self.calls >= 0:
            release(self.to_call.clear)
            self._handlers.pop(self.calls, None)
            release(os.close, self.calls)
            self.calls = -1

    def close(self) -> None:
        """Close the channels and the epoll descriptor. Other watched descriptors are closed by their owners."""
        if self._epoll.closed:
            return
        self._reactor.unwatch(self._epoll.fileno())
        self.close_calls()
        release(self._epoll.close)
        self._poll = _no_events
        release(self.control.close)
        self.close_child_ends()
        for fd in (self.frames, self.stdout, self.stderr):
            release(os.close, fd)

    def let_go(self) -> None:
        """In a fork of the program, close our copies, which would hide the end of a pipe. epoll_ctl(2) would change
        what the parent's loop hears, so nothing is unregistered."""
        if not self.closed:
            self._handlers.clear()
            self._watched.clear()
            self._poll = _no_events
            self._epoll.close()
            self.control.close()
            self.close_child_ends()
            for fd in (self.calls, self.frames, self.stdout, self.stderr):
                if fd >= 0:
                    os.close(fd)


def _no_events(_timeout: int, _most: int) -> list[tuple[int, int]]:
    """Take the place of `epoll.poll` when the channels are closed."""
    return []


class Outbox:
    """Buffered writes to a non-blocking descriptor: bytes are written at once as far as possible, the rest is queued.

    Calls `want(True)` when the descriptor must be watched for writability, and `want(False)` when no longer.

    The capacity of a full pipe is increased.
    """

    __slots__ = ("_fd", "_is_pipe", "_marks", "_waiting", "_want", "is_broken")

    def __init__(self, fd: int, want: Callable[[bool], None], *, pipe: bool = False) -> None:
        self._fd = fd
        self._want = want
        self._is_pipe = pipe
        self.is_broken = False  # whether the last write found no reader
        self._waiting: list[memoryview] = []
        self._marks: deque[tuple[int, Callable[[], None]]] = deque()  # bytes since the last mark, and the callback

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def write(self, buffers: Sequence[Buffer], on_left: Callable[[], None] | None = None) -> None:
        """Send the buffers, in order, after the queued ones. `on_left` is called when they are written, or have no
        reader any more."""
        if self._waiting:
            self._waiting += map(memoryview, buffers)
        elif rest := self._send(buffers):
            if self._is_pipe:
                widen(self._fd, sum(map(len, rest)))
                rest = self._send(rest)
            if rest:
                self._waiting = rest
                self._want(True)
        if on_left is None:
            return
        if self._waiting:
            self._marks.append((self._size() - sum(size for size, _heard in self._marks), on_left))
        else:
            on_left()

    def flush(self) -> None:
        """Write queued bytes, because the descriptor has room."""
        if self._waiting:
            before = self._size() if self._marks else 0
            self._waiting = self._send(self._waiting)
            if not self._waiting:
                self._want(False)
            self._note(before - self._size() if self._waiting else before)

    def clear(self) -> None:
        """Drop the queued bytes: their reader is gone."""
        if self._waiting:
            self._waiting = []
            marks, self._marks = self._marks, deque[tuple[int, Callable[[], None]]]()
            for _size, on_left in marks:
                on_left()
            self._want(False)

    def _size(self) -> int:
        return sum(map(len, self._waiting))

    def _note(self, written: int) -> None:
        """Call the callbacks of buffers whose last byte is among `written`."""
        left: list[Callable[[], None]] = []
        while self._marks and self._marks[0][0] <= written:
            size, on_left = self._marks.popleft()
            written -= size
            left.append(on_left)
        if self._marks:
            size, on_left = self._marks[0]
            self._marks[0] = size - written, on_left
        for on_left in left:
            on_left()

    def _send(self, buffers: Sequence[Buffer]) -> list[memoryview]:
        """Write as much as there is room for. Returns the rest."""
        rest, self.is_broken = buffers, False
        while rest:
            try:
                written = os.writev(self._fd, rest[:IOV_MAX]) if len(rest) > 1 else os.write(self._fd, rest[0])
            except BlockingIOError:
                break
            except (BrokenPipeError, ConnectionResetError):
                self.is_broken = True
                return []  # the reader is gone; the init, or its pidfd, reports it in a moment
            if len(rest) == 1 and written == len(rest[0]):  # as most often
                return []
            done = 0
            while done < len(rest) and written >= len(rest[done]):
                written -= len(rest[done])
                done += 1
            rest = rest[done:]
            if written:  # the pipe is full now
                rest = [memoryview(rest[0])[written:], *rest[1:]]
                break
        return [memoryview(buffer) for buffer in rest] if rest else []


def read_available(fd: int, size: int) -> bytes | None:
    """Read once without blocking. Returns bytes, b"" at the end of the stream, or None if nothing is there now."""
    try:
        return os.read(fd, size)
    except BlockingIOError:
        return None
    except ConnectionResetError:
        return b""


class ProxyListener:
    """The listening socket for a cell's connections to its proxy. The connections of one call at a time go to its
    run."""

    __slots__ = ("_channels", "_deadlines", "_fresh", "_kept", "_socket", "run")

    def __init__(self, fd: int, channels: Channels, deadlines: Deadlines, *, kept: bool) -> None:
        self._channels = channels
        self._deadlines = deadlines
        self._kept = kept
        self._fresh = kept  # no connection of an earlier call is in the backlog
        try:
            self._socket = socket.socket(fileno=fd)
        except OSError:
            release(os.close, fd)
            raise
        self._socket.setblocking(False)
        self.run: Run | None = None  # the call whose connections are accepted

    def begin(self, run: Run) -> None:
        """Accept the call's connections, and drop connections from before it, except those of a kept process."""
        self.run, self._fresh = run, self._kept
        self._watch(run)

    def end(self) -> None:
        """Stop accepting: the call is over."""
        self.run = None
        self._pause()

    def close(self) -> None:
        try:
            self.end()
        finally:
            release(self._socket.close)

    def _watch(self, run: Run) -> None:
        if self.run is not run or self._channels.is_watched(self._socket.fileno()):
            return
        try:
            if not self._fresh:
                self._drop_waiting()
            self._channels.watch(self._socket.fileno(), self._on_connection)
        except OSError as error:
            self._try_again(run, error)

    def _drop_waiting(self) -> None:
        for _ in range(STALE_CONNECTIONS):
            connection = self._accept()
            if connection is None:
                break
            connection.close()
        self._fresh = True

    def _pause(self) -> None:
        self._channels.unwatch(self._socket.fileno())

    def _accept(self) -> socket.socket | None:
        """The next connection, or None if none waits. Raises OSError, such as EMFILE, if this process has no room."""
        try:
            return self._socket.accept()[0]
        except (BlockingIOError, ConnectionAbortedError):
            return None

    def _try_again(self, run: Run, error: OSError) -> None:
        """Retry later, because this process has no room now. The call's connection waits or fails."""
        _log.warning("%r cannot accept a connection: %s", run, error)
        self._pause()
        self._deadlines.at(time.monotonic() + ACCEPT_AGAIN_S, lambda: self._watch(run))

    def _on_connection(self) -> None:
        for _ in range(AT_ONCE):
            run = self.run
            if run is None:
                return
            try:
                connection = self._accept()
            except OSError as error:
                self._try_again(run, error)
                return
            if connection is None:
                return
            if not run.on_connection(connection):
                self._pause()
                return
