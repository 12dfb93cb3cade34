"""Close all file descriptors but those that a cell is given."""

import os
from collections.abc import Iterable
from fcntl import F_DUPFD_CLOEXEC, fcntl

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.syscalls import syscall

LOWEST_OWN = 32
"""A process that becomes a cell opens its own descriptors here or above. Descriptors for the cell are below."""
_LAST = 0xFFFFFFFF


def raised(fd: int) -> int:
    """A duplicate of `fd` at `LOWEST_OWN` or above, close-on-exec. Closes `fd`."""
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
    """The open descriptors below `limit`, found without /proc."""
    found: set[int] = set()
    for fd in range(limit):
        try:
            os.fstat(fd)
        except OSError:
            continue  # EBADF: not open
        found.add(fd)
    return found
