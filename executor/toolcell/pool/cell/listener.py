"""The listening socket for a cell's connections to its proxy. Only the running call is connected."""

import logging
import os
import socket
import time

from toolcell.pool.deadlines import Deadlines
from toolcell.pool.reactor import release
from toolcell.pool.run import Run

from .channels import Channels

_log = logging.getLogger("toolcell.pool")
ACCEPT_AGAIN_S = 0.1
STALE_CONNECTIONS = 256  # above the listening socket's backlog
AT_ONCE = 16  # a flood must not block the loop


class ProxyListener:
    """Passes the connections of one call at a time to its run."""

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
