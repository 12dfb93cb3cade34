"""Change the capacity of pipes. A frame larger than its pipe crosses in pieces, with a wake-up of both ends for
each."""

import fcntl
import os
from typing import Final

from .switches import is_on

PIPE_BYTES: Final = 64 * 1024
"""A pipe's default capacity in bytes (pipe(7))."""
WIDE_BYTES: Final = 256 * 1024
"""The capacity of a pipe after a frame did not fit, in bytes. It sends 10 MB in two thirds of the time."""
WIDEST_BYTES: Final = 1024 * 1024
"""The capacity for a larger frame, in bytes, if root sends or reads it. It saves another tenth of the time. The pipes
of any other user may hold 64 MiB in total (pipe-user-pages-soft, pipe(7))."""

_WIDENS: Final = is_on("wide_pipes")


def widen(pipe: int, frame_bytes: int) -> None:
    """Increase the capacity of a pipe for a frame that does not fit. If the kernel refuses, nothing changes."""
    if not _WIDENS:
        return
    widest = frame_bytes > WIDEST_BYTES and os.geteuid() == 0
    for size in (WIDEST_BYTES, WIDE_BYTES) if widest else (WIDE_BYTES,):
        try:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, size)
            return
        except OSError:
            pass  # EPERM: the user's pipes are at their limit. EBUSY: it was wider and holds more data now


def narrow(pipe: int) -> None:
    """Restore a widened pipe to the default capacity, so that a call finds no trace of the call before."""
    if fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) > PIPE_BYTES:
        try:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        except OSError:
            pass  # EBUSY: a kept process has written more after its answer; the trace is its own
