"""The environment that the process was exec'd with, by /proc and by the C library.

Source: I02
"""

import ctypes
import os

from tests.escape.kit import Scene, read, secrets_in

EXPECT = 0


def attack(scene: Scene) -> object:
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_char_p
    found = 0 if libc.getenv(b"TOOLCELL_ESCAPE_SECRET") is None else 1
    for path in ("/proc/self/environ", "/proc/1/environ", f"/proc/{os.getppid()}/environ"):
        try:
            found += secrets_in(read(path))
        except OSError:
            continue
    return found
