"""How much a pipe holds at once: what is larger than that goes over piece by piece, with a wake-up of both ends for
each."""

import fcntl
from typing import Final

PIPE_BYTES: Final = 64 * 1024
"""A pipe's default capacity (pipe(7))."""
WIDE_BYTES: Final = 256 * 1024
"""What a pipe holds once a frame did not go into it whole. 10 MB go over in two thirds of the time; more gains little
and counts against the 64 MiB that the pipes of a user without privileges may hold (pipe-user-pages-soft)."""


def widen(pipe: int) -> None:
    """Let the pipe hold WIDE_BYTES. Where that cannot be, it stays as it is, and is slower."""
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, WIDE_BYTES)
    except OSError:
        pass  # EPERM: the user's pipes hold too much already. EBUSY: it was wider, and holds more now
