"""A cell's descriptors: five channels, and whatever else tells of it, in one epoll of its own.

So the event loop watches a single descriptor for each cell, and a wake-up costs one more system call, however many of
them are ready.
"""

import os
import select
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from toolcell.pool.outbox import Outbox
from toolcell.pool.reactor import Reactor

DESCRIPTORS = 8  # that one epoll holds: seven at the most; for its default of 1,023 memory is asked for each time


class Channels:
    """The control socket, the pipes of calls, frames, stdout and stderr. Ours do not block and do not survive an exec;
    theirs go to the zygote. Handlers are called in the order in which they were added.

    `on_error` is called in the handling of an exception that a handler raised. Making one raises OSError where
    descriptors run out.
    """

    __slots__ = (
        "_epoll",
        "_handlers",
        "_on_error",
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

    def __init__(self, reactor: Reactor, on_error: Callable[[], None]) -> None:
        with ExitStack() as undo:  # where descriptors run out half-way
            self.control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            undo.callback(self.control.close)
            undo.callback(control.close)
            pipes: list[tuple[int, int]] = []
            for _ in range(4):
                pipes.append(os.pipe2(os.O_CLOEXEC))
                for fd in pipes[-1]:
                    undo.callback(os.close, fd)
            self._epoll = select.epoll()
            undo.pop_all()
        (calls, self.calls), (self.frames, frames), (self.stdout, out), (self.stderr, err) = pipes
        self._theirs = [control.detach(), calls, frames, out, err]
        self.control.setblocking(False)
        for fd in (self.calls, self.frames, self.stdout, self.stderr):
            os.set_blocking(fd, False)
        self._handlers: dict[int, Callable[[], object]] = {}
        self._watched: set[int] = set()  # the handlers' descriptors that are read now
        self._reactor = reactor
        self._on_error = on_error
        self.to_call = Outbox(self.calls, self._want_room_for_calls, pipe=True)
        self.to_init = Outbox(self.control.fileno(), self._want_room_for_control)
        reactor.watch(self._epoll.fileno(), self.look)

    @property
    def theirs(self) -> Sequence[int]:
        """What the cell gets, in the order that the zygote expects: control, in, out, stdout, stderr."""
        return self._theirs

    def close_child_ends(self) -> None:
        """Close our copies of `theirs`, so that the cell's death is the end of each pipe."""
        for fd in self._theirs:
            os.close(fd)
        self._theirs = []

    # -- reading ------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Have what is ready handled, if anything is. The event loop calls this, and who cannot wait for that."""
        try:
            events = self._epoll.poll(0, DESCRIPTORS) if not self._epoll.closed else ()
            if len(events) == 1:
                self._handlers[events[0][0]]()
            elif events:
                ready = {fd for fd, _event in events}
                for fd, handler in list(self._handlers.items()):
                    if fd in ready and not self._epoll.closed:
                        handler()
        except Exception:  # a bug of ours: better a lost cell and an error than a call that never ends
            self._on_error()

    def ready(self) -> set[int]:
        """The descriptors that are ready now. Dearer is an exception for each empty pipe."""
        return {fd for fd, _event in self._epoll.poll(0, DESCRIPTORS)}

    def listen(
        self,
        on_stdout: Callable[[], object],
        on_stderr: Callable[[], object],
        on_frames: Callable[[], object],
        on_control: Callable[[], object],
    ) -> None:
        """Handle what was printed first, then frames, then control; after these, what else is watched."""
        self.watch(self.stdout, on_stdout)
        self.watch(self.stderr, on_stderr)
        self.watch(self.frames, on_frames)
        self.watch(self.control.fileno(), on_control)
        self._handlers[self.calls] = self.to_call.flush  # watched only where it has no room

    def watch(self, fd: int, handler: Callable[[], object]) -> None:
        """Have `handler` called whenever there is something to read."""
        self._handlers[fd] = handler
        self._watched.add(fd)
        self._epoll.register(fd, select.EPOLLIN)

    def unwatch(self, fd: int) -> None:
        """Stop looking at a descriptor, such as one whose other end is closed."""
        self._handlers.pop(fd, None)
        if fd in self._watched:
            self._watched.remove(fd)
            self._epoll.unregister(fd)

    def is_watched(self, fd: int) -> bool:
        return fd in self._watched

    @property
    def is_paused(self) -> bool:
        """Whether nothing is read of what the call says and prints."""
        return self.frames in self._handlers and self.frames not in self._watched

    def pause(self) -> None:
        """Read nothing of what the call says and prints, until `resume`."""
        if self.frames in self._handlers:
            for fd in (self.frames, self.stdout, self.stderr):
                if fd in self._watched:
                    self._watched.remove(fd)
                    self._epoll.unregister(fd)

    def resume(self) -> None:
        """Read on, as far as the other end is open."""
        for fd in (self.frames, self.stdout, self.stderr):
            if fd in self._handlers and fd not in self._watched:
                self._watched.add(fd)
                self._epoll.register(fd, select.EPOLLIN)

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
        """Close the pipe of calls: its end is what a kept process hears."""
        if self.calls >= 0:
            self.to_call.clear()
            self._handlers.pop(self.calls, None)
            os.close(self.calls)
            self.calls = -1

    def close(self) -> None:
        """Close the channels and the epoll. What else was watched is its owner's to close."""
        self._reactor.unwatch(self._epoll.fileno())
        self.close_calls()
        self._epoll.close()
        self.control.close()
        self.close_child_ends()
        for fd in (self.frames, self.stdout, self.stderr):
            os.close(fd)
