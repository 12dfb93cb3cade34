"""The socket where a cell connects to its proxy. Only a call that runs is connected."""

import logging
import socket
import time

from toolcell.pool.deadlines import Deadlines
from toolcell.pool.run import Run

from .channels import Channels

_log = logging.getLogger("toolcell.pool")
ACCEPT_AGAIN_S = 0.1
STALE_CONNECTIONS = 256  # above the listening socket's backlog
AT_ONCE = 16  # a flood must not hold the loop


class Listener:
    """Hands the connections of one call at a time to its run."""

    __slots__ = ("_channels", "_deadlines", "_kept", "_socket", "run")

    def __init__(self, fd: int, channels: Channels, deadlines: Deadlines, *, kept: bool) -> None:
        self._channels = channels
        self._deadlines = deadlines
        self._kept = kept
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)
        self.run: Run | None = None  # whose connections are accepted

    def begin(self, run: Run) -> None:
        """Accept what the call connects, and nothing that was connected before (kept processes aside)."""
        self.run = run
        for _ in range(0 if self._kept else STALE_CONNECTIONS):
            connection = self._accept()
            if connection is None:
                break
            connection.close()
        self._watch(run)

    def end(self) -> None:
        """The call is over."""
        self.run = None
        self._pause()

    def close(self) -> None:
        self.end()
        self._socket.close()

    def _watch(self, run: Run) -> None:
        if self.run is run and not self._channels.is_watched(self._socket.fileno()):
            self._channels.watch(self._socket.fileno(), self._on_connection)

    def _pause(self) -> None:
        self._channels.unwatch(self._socket.fileno())

    def _accept(self) -> socket.socket | None:
        """The next connection, None where none waits."""
        try:
            return self._socket.accept()[0]
        except (BlockingIOError, ConnectionAbortedError):
            return None
        except OSError as error:  # EMFILE: this process has no room now; the call tries again in a moment, or fails
            run = self.run
            assert run is not None
            _log.warning("%r cannot accept a connection: %s", run, error)
            self._pause()
            self._deadlines.at(time.monotonic() + ACCEPT_AGAIN_S, lambda: self._watch(run))
            return None

    def _on_connection(self) -> None:
        for _ in range(AT_ONCE):
            run = self.run
            connection = self._accept() if run is not None else None
            if run is None or connection is None:
                return
            if not run.on_connection(connection):
                self._pause()
                return
