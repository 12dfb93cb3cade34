"""The file descriptors of a cell, by number, and how whole messages go over them."""

import fcntl
import os
import stat
from collections.abc import Iterable
from typing import Final, NamedTuple

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


class State(NamedTuple):
    """What a process can change of a descriptor for others that have it too: it belongs to the open file."""

    flags: int
    owner: int
    signal: int
    pipe_bytes: int  # 0 where it is no pipe


def state_of(fd: int) -> State:
    """The state of `fd` now."""
    pipe_bytes = fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) if stat.S_ISFIFO(os.fstat(fd).st_mode) else 0
    flags, owner = fcntl.fcntl(fd, fcntl.F_GETFL), fcntl.fcntl(fd, fcntl.F_GETOWN)
    return State(flags, owner, fcntl.fcntl(fd, _F_GETSIG), pipe_bytes)


def restore(fd: int, state: State) -> None:
    """Undo what a call changed of `fd`: non-blocking, asynchronous, a smaller pipe. OSError where it cannot be."""
    now = state_of(fd)
    if now == state:
        return
    fcntl.fcntl(fd, fcntl.F_SETFL, state.flags)
    fcntl.fcntl(fd, fcntl.F_SETOWN, state.owner)
    fcntl.fcntl(fd, _F_SETSIG, state.signal)
    if now.pipe_bytes != state.pipe_bytes:
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, state.pipe_bytes)


def write_all(fd: int, buffers: Iterable[Buffer]) -> None:
    """Write the buffers, in order, to a blocking descriptor."""
    for buffer in buffers:
        written = os.write(fd, buffer)
        if written < len(buffer):
            rest = memoryview(buffer)[written:]
            while rest:
                rest = rest[os.write(fd, rest) :]
