"""The file descriptors of a cell, by number, and how whole messages go over them."""

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from toolcell.fast.pipes import PIPE_BYTES
from toolcell.wire.frames import Buffer

CONTROL: Final = 3
"""A stream socket between the init and the supervisor. Closed in every call process before tool code runs."""
FRAMES_IN: Final = 4
FRAMES_OUT: Final = 5
SHARED: Final = (1, 2, FRAMES_IN, FRAMES_OUT)
"""What every call process inherits, one after the other, as the same open files: pipes. Standard input is its own."""
OWN_INPUT: Final[tuple[Callable[[], object], ...]] = (
    partial(os.close, 0),
    partial(os.open, os.devnull, os.O_RDWR),  # the lowest number that is free
    partial(os.set_inheritable, 0, True),
)
"""What gives a process a standard input of its own in place of the zygote's, which all cells would share: locks and
flags are an open file's."""
_UNLOCKED = struct.pack("hhqqi", fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)  # struct flock, of the whole file
_F_SETSIG, _F_GETSIG = 10, 11  # fcntl(2); the module has no names for them
READ_BYTES: Final = PIPE_BYTES


_SETTINGS: Final = (
    (fcntl.F_GETFL, fcntl.F_SETFL),
    (fcntl.F_GETOWN, fcntl.F_SETOWN),
    (_F_GETSIG, _F_SETSIG),
    (fcntl.F_GETPIPE_SZ, fcntl.F_SETPIPE_SZ),
)
"""What asks fcntl(2) for a setting, and what sets it."""


def use_leaves_times() -> bool:
    """Whether this kernel leaves the times of an unnamed pipe alone when it is written to and read from; older ones
    change them with each use."""
    reader, writer = os.pipe()
    try:
        os.utime(reader, ns=(0, 0))
        os.write(writer, b"1")
        os.read(reader, 1)
        info = os.fstat(reader)
        return info.st_atime_ns == info.st_mtime_ns == 0
    finally:
        os.close(reader)
        os.close(writer)


class SharedSettings:
    """What a process can change of `SHARED` for others, as it is now: it belongs to the open file or to the pipe, not
    to the descriptor."""

    def __init__(self) -> None:
        self._times_tell = use_leaves_times()
        self._fds: list[int] = []
        self._gets: list[int] = []
        self._puts: list[int] = []
        for fd in SHARED:
            for get, put in _SETTINGS if stat.S_ISFIFO(os.fstat(fd).st_mode) else _SETTINGS[:-1]:
                self._fds.append(fd)
                self._gets.append(get)
                self._puts.append(put)
        self._found = self.now()
        self._pipes_found = self._pipes()

    def now(self) -> list[int]:
        """The current values, in the order of `_fds`."""
        return list(map(fcntl.fcntl, self._fds, self._gets))

    def _pipes(self) -> list[tuple[int, int, int, int]]:
        """Modes and owners of the pipes, and when they or the times were changed: a call can do that where its user is
        the supervisor's."""
        found: list[tuple[int, int, int, int]] = []
        for info in map(os.fstat, SHARED):
            changed = info.st_ctime_ns if self._times_tell else 0
            found.append((info.st_mode, info.st_uid, info.st_gid, changed))
        return found

    def restore(self) -> None:
        """Undo what a call changed: non-blocking, asynchronous, a smaller pipe, locks. OSError where it cannot be: of a
        pipe's mode and times, the kernel keeps when they were changed."""
        for fd in SHARED:
            fcntl.flock(fd, fcntl.LOCK_UN)
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _UNLOCKED)
        if self._pipes() != self._pipes_found:
            raise OSError(errno.EPERM, "a call changed the mode, owner or times of a shared pipe")
        if self.now() != self._found:
            for fd, get, put, value in zip(self._fds, self._gets, self._puts, self._found, strict=True):
                if fcntl.fcntl(fd, get) != value:
                    fcntl.fcntl(fd, put, value)


def read_all(fd: int) -> bytes:
    """Read a pipe until all its writers have closed it."""
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
