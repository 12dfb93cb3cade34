"""Send the output of a call on while the call runs, so that a kill cannot lose it.

Python's output goes to the pipe at once, even a part of a line. This takes two system calls for each `print`. In a
flood of output it takes one: then the parts of a line are buffered until the line ends, and such a part is lost if the
process is killed first. Output in a buffer of a command, or of a library that the tool uses, is lost in any case.

The output of commands is sent to the supervisor. Up to a bound, the whole stream is sent as it comes. Beyond that, or
if frames become too frequent, output is buffered for a moment. Of the buffered output, the last `OUTPUT_BYTES` bytes
are sent, with the number of bytes before them.
"""

import io
import os
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from toolcell.wire.messages import OUTPUT_BYTES, Output

from .link import Link

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

WRITES_A_SECOND: Final = 10_000
"""More writes per second are a flood. A write takes 1 µs, so this many take a hundredth of the time."""
BURST: Final = 2_000  # writes that may come at once
CALM: Final = 100  # writes that may come at once after a flood: that is, after a pause of 10 ms
_now = time.monotonic
_write = os.write


class _Pipe(io.FileIO):
    """A standard stream without a buffer. It repeats a write that a signal handler of the tool has interrupted."""

    text: io.TextIOWrapper

    def __init__(self, fd: int, name: str) -> None:
        super().__init__(fd, "wb", closefd=False)
        self.name = name
        self._fd = fd
        self._room = float(BURST)  # writes that may come now before they are a flood
        self._last = 0.0
        self._holds = False

    def write(self, data: "ReadableBuffer", /) -> int:
        now = _now()
        room = self._room + (now - self._last) * WRITES_A_SECOND - 1.0
        self._last = now
        if room < 0.0:
            room = 0.0
            if not self._holds:
                self._hold_lines(True)
        elif self._holds and room >= CALM:
            self._hold_lines(False)
        self._room = room if room < BURST else BURST
        written = _write(self._fd, data)
        if type(data) is bytes and written == len(data):
            return written
        rest = memoryview(data).cast("B")[written:]
        while rest:
            rest = rest[_write(self._fd, rest) :]
        return memoryview(data).nbytes

    def _hold_lines(self, hold: bool) -> None:
        self._holds = hold
        with suppress(ValueError):  # the tool has detached it
            self.text.reconfigure(line_buffering=hold, write_through=not hold)


def unbuffer() -> None:
    """Make sys.stdout and sys.stderr write to their pipes at once."""
    for name in ("stdout", "stderr"):
        stream: object = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue
        encoding, errors, fd = stream.encoding, stream.errors, stream.fileno()
        stream.detach()
        pipe = _Pipe(fd, f"<{name}>")
        pipe.text = io.TextIOWrapper(pipe, encoding=encoding, errors=errors, newline="\n", write_through=True)
        vars(pipe.text)["mode"] = "w"  # as the interpreter's own stream has it
        setattr(sys, name, pipe.text)
        setattr(sys, f"__{name}__", pipe.text)


FRAMES_AT_ONCE = 200
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
        if self._frames > FRAMES_AT_ONCE or stream.sent >= self._whole_bytes:
            self._next_at = time.monotonic() + PAUSE_S + self._frames / SLOWER_EACH
