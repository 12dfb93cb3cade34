"""What commands print, on its way to the supervisor while they run: it has it also where this process is killed.

A stream goes over whole up to a bound, as it comes. Beyond that, and where more comes than is worth a frame at once, it
waits a moment; of what waits the last `OUTPUT_BYTES` are sent, and the number of those before them.
"""

import threading
import time

from toolcell.wire.messages import OUTPUT_BYTES, Output

from .link import Link

BURST = 200
"""Frames that a call sends as they come; after these it waits between two."""
PAUSE_S = 0.05
SLOWER_EACH = 20_000  # frames add a second to that, so that days of output stay below `wire.protocol.CallLimits`
SNAPSHOT_BYTES = 16 * 1024  # of what is not sent whole; more than the supervisor keeps of an end
LAST_S = 1.0  # that the end of a command waits for another thread's request


class _RelayedStream:
    """What one stream has for the supervisor: the end of what waits, and how much there was before it."""

    __slots__ = ("number", "sent", "skipped", "waiting")

    def __init__(self, number: int) -> None:
        self.number = number
        self.sent = 0
        self.skipped = 0
        self.waiting = bytearray()

    def add(self, data: bytes, whole_bytes: int) -> None:
        self.waiting += data
        room = OUTPUT_BYTES if self.sent < whole_bytes else SNAPSHOT_BYTES
        beyond = len(self.waiting) - room
        if beyond > 0:
            del self.waiting[:beyond]
            self.skipped += beyond


class Relay:
    """Of one call process: each call of a kept one begins anew. May be used from any thread."""

    def __init__(self, link: Link, whole_bytes: int) -> None:
        """A stream goes over whole up to `whole_bytes`."""
        self._link = link
        self._whole_bytes = whole_bytes
        self._lock = threading.Lock()
        self._seq = 0
        self._begin()

    def _begin(self) -> None:
        self._streams = _RelayedStream(1), _RelayedStream(2)
        self._frames = 0
        self._next_at = 0.0

    def feed(self, stream: int, data: bytes) -> None:
        """A command has printed this to `stream`, 1 or 2."""
        with self._lock:
            if self._seq != self._link.seq:
                self._seq = self._link.seq
                self._begin()
            found = self._streams[stream - 1]
            for start in range(0, len(data), OUTPUT_BYTES):
                piece = data[start : start + OUTPUT_BYTES]
                if found.sent < self._whole_bytes and len(found.waiting) + len(piece) > OUTPUT_BYTES:
                    self._send(found, LAST_S)
                found.add(piece, self._whole_bytes)
            if time.monotonic() >= self._next_at:
                self._send(found)

    def due_s(self) -> float | None:
        """In how many seconds `flush` has something to send, None for nothing."""
        if any(stream.waiting or stream.skipped for stream in self._streams):
            return max(0.0, self._next_at - time.monotonic())
        return None

    def flush(self, *, last: bool = False) -> None:
        """Send what waits, if it has waited for long enough or the command has ended."""
        with self._lock:
            if last or time.monotonic() >= self._next_at:
                for stream in self._streams:
                    self._send(stream, LAST_S if last else 0.0)

    def _send(self, stream: _RelayedStream, wait_s: float = 0.0) -> None:
        if not stream.waiting and not stream.skipped:
            return
        message = Output(self._seq, stream.number, stream.skipped, bytes(stream.waiting))
        if not self._link.told(message, wait_s):
            self._next_at = time.monotonic() + PAUSE_S  # another thread waits for a reply
            return
        stream.sent += len(stream.waiting)
        stream.skipped = 0
        stream.waiting.clear()
        self._frames += 1
        if self._frames > BURST or stream.sent >= self._whole_bytes:
            self._next_at = time.monotonic() + PAUSE_S + self._frames / SLOWER_EACH
