"""Write Python's output in a call process to the pipe at once, even a part of a line, so that a kill cannot lose it.

This takes two system calls for each `print`. In a flood of output it takes one: then the parts of a line are buffered
until the line ends, and such a part is lost if the process is killed first. Output in a buffer of a command, or of a
library that the tool uses, is lost in any case.
"""

import io
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

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
