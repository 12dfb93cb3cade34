"""What Python prints in a call process: in the pipe at once, also a part of a line, where a kill cannot take it back.

A `print` takes two system calls for that. In a flood of them it takes one: then the parts of a line wait for its end,
until a line comes after a pause, and such a part is lost where the process is killed before that. What a command, or a
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

FLOOD_WRITES: Final = 2_000
"""So many writes, each soon after the last one, are a flood: they take some milliseconds."""
SOON_S: Final = 0.005
_now = time.monotonic
_write = os.write


class _Pipe(io.FileIO):
    """A standard stream without a buffer. Each write is whole: a signal handler of the tool's may cut one short."""

    text: io.TextIOWrapper

    def __init__(self, fd: int, name: str) -> None:
        super().__init__(fd, "wb", closefd=False)
        self.name = name
        self._fd = fd
        self._writes = 0  # of this flood
        self._last = 0.0

    def write(self, data: "ReadableBuffer", /) -> int:
        now = _now()
        if now - self._last > SOON_S:
            if self._writes >= FLOOD_WRITES:
                self._hold_lines(False)
            self._writes = 0
        self._last = now
        self._writes += 1
        if self._writes == FLOOD_WRITES:
            self._hold_lines(True)
        written = _write(self._fd, data)
        if type(data) is bytes and written == len(data):
            return written
        rest = memoryview(data).cast("B")[written:]
        while rest:
            rest = rest[_write(self._fd, rest) :]
        return memoryview(data).nbytes

    def _hold_lines(self, hold: bool) -> None:
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
