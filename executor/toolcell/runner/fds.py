"""The file descriptors of a cell, by number, and how whole messages go over them."""

import os
from collections.abc import Iterable
from typing import Final

CONTROL: Final = 3
"""A stream socket between the init and the supervisor. Closed in every call process before tool code runs."""
FRAMES_IN: Final = 4
FRAMES_OUT: Final = 5
ALL: Final = (0, 1, 2, CONTROL, FRAMES_IN, FRAMES_OUT)
FIRST_FREE: Final = 6
READ_BYTES: Final = 64 * 1024  # a pipe's default capacity


def write_all(fd: int, buffers: Iterable[bytes]) -> None:
    """Write the buffers, in order, to a blocking descriptor."""
    for buffer in buffers:
        written = os.write(fd, buffer)
        if written < len(buffer):
            rest = memoryview(buffer)[written:]
            while rest:
                rest = rest[os.write(fd, rest) :]
