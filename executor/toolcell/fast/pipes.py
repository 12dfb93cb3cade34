"""How much a pipe holds at once: what is larger than that goes over piece by piece, with a wake-up of both ends for
each."""

import fcntl
import os
from typing import Final

from .switches import is_on

PIPE_BYTES: Final = 64 * 1024
"""A pipe's default capacity (pipe(7))."""
WIDE_BYTES: Final = 256 * 1024
"""What a pipe holds once a frame did not go into it whole: 10 MB go over in two thirds of the time."""
WIDEST_BYTES: Final = 1024 * 1024
"""The same for a frame that is larger than this, where root sends or reads it: that takes another tenth off. Anybody
else's pipes may hold 64 MiB together (pipe-user-pages-soft)."""

_WIDENS: Final = is_on("wide_pipes")


def widen(pipe: int, frame_bytes: int) -> None:
    """Let the pipe hold more of a frame that does not go into it. Where that cannot be, it stays as it is."""
    if not _WIDENS:
        return
    widest = frame_bytes > WIDEST_BYTES and os.geteuid() == 0
    for size in (WIDEST_BYTES, WIDE_BYTES) if widest else (WIDE_BYTES,):
        try:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, size)
            return
        except OSError:
            pass  # EPERM: the user's pipes hold too much already. EBUSY: it was wider, and holds more now


def narrow(pipe: int) -> None:
    """Have a pipe that was widened hold what pipes hold, so that a call finds nothing of the call before."""
    if fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) > PIPE_BYTES:
        try:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        except OSError:
            pass  # EBUSY: a kept process has written more after its answer, and finds what it did itself
