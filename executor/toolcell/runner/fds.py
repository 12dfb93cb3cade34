"""The file descriptors of a cell, by number, and how whole messages go over them."""

import fcntl
import os
import stat
from collections.abc import Iterable
from typing import Final

from toolcell.wire.frames import Buffer
from toolcell.wire.pipes import PIPE_BYTES

CONTROL: Final = 3
"""A stream socket between the init and the supervisor. Closed in every call process before tool code runs."""
FRAMES_IN: Final = 4
FRAMES_OUT: Final = 5
SHARED: Final = (0, 1, 2, FRAMES_IN, FRAMES_OUT)
"""What every call process inherits, one after the other, as the same open files."""
_F_SETSIG, _F_GETSIG = 10, 11  # fcntl(2); the module has no names for them
READ_BYTES: Final = PIPE_BYTES


_SETTINGS: Final = (
    (fcntl.F_GETFL, fcntl.F_SETFL),
    (fcntl.F_GETOWN, fcntl.F_SETOWN),
    (_F_GETSIG, _F_SETSIG),
    (fcntl.F_GETPIPE_SZ, fcntl.F_SETPIPE_SZ),
)
"""What asks fcntl(2) for a setting, and what sets it."""


class Settings:
    """What a process can change of `SHARED` for others, as it is now: it belongs to the open file, not to the
    descriptor."""

    def __init__(self) -> None:
        self._fds: list[int] = []
        self._gets: list[int] = []
        self._puts: list[int] = []
        for fd in SHARED:
            for get, put in _SETTINGS if stat.S_ISFIFO(os.fstat(fd).st_mode) else _SETTINGS[:-1]:
                self._fds.append(fd)
                self._gets.append(get)
                self._puts.append(put)
        self._found = self.now()

    def now(self) -> list[int]:
        """What they are."""
        return list(map(fcntl.fcntl, self._fds, self._gets))

    def restore(self) -> None:
        """Undo what a call changed: non-blocking, asynchronous, a smaller pipe. OSError where it cannot be."""
        if self.now() != self._found:
            for fd, get, put, value in zip(self._fds, self._gets, self._puts, self._found, strict=True):
                if fcntl.fcntl(fd, get) != value:
                    fcntl.fcntl(fd, put, value)


def read_all(fd: int) -> bytes:
    """All that is written to a pipe until nobody can write to it any more."""
    parts: list[bytes] = []
    while part := os.read(fd, READ_BYTES):
        parts.append(part)
    return b"".join(parts)


def write_all(fd: int, buffers: Iterable[Buffer]) -> None:
    """Write the buffers, in order, to a blocking descriptor."""
    for buffer in buffers:
        written = os.write(fd, buffer)
        if written < len(buffer):
            rest = memoryview(buffer)[written:]
            while rest:
                rest = rest[os.write(fd, rest) :]
