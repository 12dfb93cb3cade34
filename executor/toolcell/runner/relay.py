"""Send the output of commands to the supervisor while they run, so that it is not lost if this process is killed.

Up to a bound, the whole stream is sent as it comes. Beyond that, or if frames become too frequent, output is buffered
for a moment. Of the buffered output, the last `OUTPUT_BYTES` bytes are sent, with the number of bytes before them.
"""

import threading
import time

from toolcell.wire.messages import OUTPUT_BYTES, Output

from .link import Link

BURST = 200
"""The number of frames that a call sends at once. After them it waits between two frames."""
PAUSE_S = 0.05
SLOWER_EACH = 20_000  # frames add 1 s to the wait, so that days of output stay below `wire.protocol.CallLimits`
SNAPSHOT_BYTES = 16 * 1024  # sent of a stream beyond its bound; more than the supervisor keeps of a stream's end
LAST_S = 1.0  # seconds that the end of a command waits for another thread's request


class _RelayedStream:
    """One stream's buffered output: its last bytes, and the number of bytes before them."""

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
    """The relay of one call process. Each call of a kept process starts with a new state. Thread-safe."""

    def __init__(self, link: Link, whole_bytes: int) -> None:
        """The first `whole_bytes` bytes of each stream are sent completely."""
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
        """Take what a command has printed to `stream`: 1 is stdout, 2 is stderr."""
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
        """The seconds until `flush` has something to send, or None if nothing is buffered."""
        if any(stream.waiting or stream.skipped for stream in self._streams):
            return max(0.0, self._next_at - time.monotonic())
        return None

    def flush(self, *, last: bool = False) -> None:
        """Send the buffered output, if it has waited for long enough or the command has ended."""
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
