"""A cell's descriptors: five channels and a few others, in one epoll instance (epoll(7)).

The event loop watches only that epoll descriptor. A wake-up costs one more system call, however many descriptors are
ready.
"""

import os
import select
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from toolcell.pool.outbox import Outbox
from toolcell.pool.reactor import Owner, Reactor, release
from toolcell.wire import forks

DESCRIPTORS = 8  # events for one epoll_wait, of which there are at most seven; each wait allocates memory for them


class Channels:
    """The control socket and the pipes for calls, frames, stdout and stderr. Our ends are non-blocking and
    close-on-exec; the other ends go to the zygote. Handlers are called in the order in which they were added.

    `owner` is the cell, which ends if a handler raises. The constructor raises OSError if no descriptor is left.
    """

    __slots__ = (
        "__weakref__",
        "_epoll",
        "_handlers",
        "_owner",
        "_poll",
        "_reactor",
        "_theirs",
        "_watched",
        "calls",
        "control",
        "frames",
        "stderr",
        "stdout",
        "to_call",
        "to_init",
    )

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
