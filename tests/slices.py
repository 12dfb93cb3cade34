"""The slices that the kernel's scheduler gives to processes."""

import ctypes
import os
import struct
from typing import Final

from toolcell_sandbox.kernel.syscalls import syscall

HAS_SLICES: Final = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 12)
"""Whether the kernel has a slice for each process."""


def slice_of(pid: int) -> int:
    """The slice of a process in nanoseconds, sched_runtime of sched_getattr(2); 0 before Linux 6.12."""
    attributes = ctypes.create_string_buffer(48)
    syscall("sched_getattr", pid, attributes, 48, 0, step="read the slice")
    return int(struct.unpack_from("=Q", attributes, 24)[0])
