"""Only the file descriptors that are named stay open."""

import os
from collections.abc import Iterable
from fcntl import F_DUPFD_CLOEXEC, fcntl

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.syscalls import syscall

LOWEST_OWN = 32
"""What a process that is to become a cell opens for itself lies here or above, and what a cell is given, below."""
_LAST = 0xFFFFFFFF


def raised(fd: int) -> int:
    """The same open file at `LOWEST_OWN` or above, closed on exec; `fd` is closed."""
    try:
        return fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_OWN)
    except OSError as error:
        raise SandboxError(
            "A descriptor could not be moved out of the way of those that a cell is given",
            step="move a descriptor",
            errno=error.errno or 0,
            cure="Raise the limit on open files (ulimit -n): making a cell takes about 60.",
        ) from error
    finally:
        os.close(fd)


def keep_only(keep: Iterable[int]) -> None:
    """Close every descriptor but 0, 1, 2 and these."""
    start = 0
    for fd in sorted({0, 1, 2, *keep}):
        if fd > start:
            close_range(start, fd - 1)
        start = fd + 1
    close_range(start, _LAST)


def close_range(first: int, last: int) -> None:
    """Close the descriptors from first to last, both included."""
    syscall("close_range", first, last, 0, step="close inherited descriptors", mechanism="close_range")


def open_fds(limit: int) -> set[int]:
    """The descriptors below `limit` that are open, found without /proc."""
    found: set[int] = set()
    for fd in range(limit):
        try:
            os.fstat(fd)
        except OSError:
            continue  # EBADF: not open
        found.add(fd)
    return found
