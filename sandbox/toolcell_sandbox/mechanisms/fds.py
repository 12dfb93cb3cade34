"""Only the file descriptors that are named stay open."""

import os
from collections.abc import Iterable

from toolcell_sandbox.kernel.syscalls import syscall

_LAST = 0xFFFFFFFF


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
