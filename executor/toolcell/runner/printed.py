"""What Python prints in a call process: in the pipe at once, also a part of a line, where a kill cannot take it back.

A `print` takes two system calls for that. In a flood of them it takes one: then the parts of a line wait for its end,
until lines come more slowly, and such a part is lost where the process is killed before that. What a command, or a
library of the tool's, holds in a buffer of its own is lost with it: nobody else can reach that.
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
"""More than these are a flood: a write takes a microsecond, so they take a hundredth of the time."""
BURST: Final = 2_000  # writes that may come at once
CALM: Final = 100  # that may come at once where a flood is over: after a pause of 10 ms
_now = time.monotonic
_write = os.write


class _Pipe(io.FileIO):
    """A standard stream without a buffer. Each write is whole: a signal handler of the tool's may cut one short."""

    text: io.TextIOWrapper

    def __init__(self, fd: int, name: str) -> None:
        super().__init__(fd, "wb", closefd=False)
        self.name = name
        self._fd = fd
        self._room = float(BURST)  # writes that may come now without being a flood
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
    """Have Python's two streams write to their pipes at once."""
    for name in ("stdout", "stderr"):
        stream: object = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue
        encoding, errors, fd = stream.encoding, stream.errors, stream.fileno()
        stream.detach()
        pipe = _Pipe(fd, f"<{name}>")
        pipe.text = io.TextIOWrapper(pipe, encoding=encoding, errors=errors, newline="\n", write_through=True)
        vars(pipe.text)["mode"] = "w"  # as the interpreter's own has it
        setattr(sys, name, pipe.text)
        setattr(sys, f"__{name}__", pipe.text)
