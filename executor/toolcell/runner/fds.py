"""The file descriptors of a cell, by number, and reads and writes of whole messages."""

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from toolcell.wire.frames import Buffer
from toolcell.wire.pipes import PIPE_BYTES

CONTROL: Final = 3
"""A stream socket between the init and the supervisor. Closed in every call process before tool code runs."""
FRAMES_IN: Final = 4
FRAMES_OUT: Final = 5
SHARED: Final = (1, 2, FRAMES_IN, FRAMES_OUT)
"""The pipes that all call processes inherit as the same open files. Each call process has its own standard input."""
OWN_INPUT: Final[tuple[Callable[[], object], ...]] = (
    partial(os.close, 0),
    partial(os.open, os.devnull, os.O_RDWR),  # this gets the lowest free number
    partial(os.set_inheritable, 0, True),
)
"""The steps that replace the zygote's standard input by the process's own. A shared one would share locks and flags,
which belong to the open file description (open(2))."""
_UNLOCKED = struct.pack("hhqqi", fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)  # struct flock, for the whole file
_F_SETSIG, _F_GETSIG = 10, 11  # fcntl(2); the module has no names for them
READ_BYTES: Final = PIPE_BYTES


_SETTINGS: Final = (
    (fcntl.F_GETFL, fcntl.F_SETFL),
    (fcntl.F_GETOWN, fcntl.F_SETOWN),
    (_F_GETSIG, _F_SETSIG),
    (fcntl.F_GETPIPE_SZ, fcntl.F_SETPIPE_SZ),
)
"""The fcntl(2) commands that get each setting, and those that set it."""


def use_leaves_times() -> bool:
    """Whether this kernel keeps the times of an unnamed pipe when it is read and written. Older kernels change them at
    each use."""
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


def has_ofd_locks() -> bool:
    """Whether this process may take locks of open files (F_OFD_SETLK). The filter refuses them with EINVAL."""
    try:
        fcntl.fcntl(FRAMES_IN, fcntl.F_OFD_SETLK, _UNLOCKED)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True


class SharedSettings:
    """The settings of `SHARED` that a process can change for others, because they belong to the open file description
    or to the pipe, not to the descriptor."""

    def __init__(self) -> None:
        self._times_tell = use_leaves_times()
        self._has_ofd_locks = has_ofd_locks()
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
        """The pipes' modes, owners and change times. A call can change them if its user is the supervisor's."""
        found: list[tuple[int, int, int, int]] = []
        for info in map(os.fstat, SHARED):
            changed = info.st_ctime_ns if self._times_tell else 0
            found.append((info.st_mode, info.st_uid, info.st_gid, changed))
        return found

    def restore(self) -> None:
        """Undo a call's changes: non-blocking, asynchronous, a smaller pipe, locks. Raises OSError for changes that
        cannot be undone: a pipe's change time shows that its mode or times were changed."""
        for fd in SHARED:
            fcntl.flock(fd, fcntl.LOCK_UN)
            if self._has_ofd_locks:
                fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _UNLOCKED)
        if self._pipes() != self._pipes_found:
            raise OSError(errno.EPERM, "a call changed the mode, owner or times of a shared pipe")
        if self.now() != self._found:
            for fd, get, put, value in zip(self._fds, self._gets, self._puts, self._found, strict=True):
                if fcntl.fcntl(fd, get) != value:
                    fcntl.fcntl(fd, put, value)


def read_all(fd: int) -> bytes:
    """Read from a pipe until all its writers have closed it."""
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
