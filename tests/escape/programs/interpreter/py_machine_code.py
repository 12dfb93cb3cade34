"""Machine code of its own in an executable mapping is stopped by the same rules.

Source: own
"""

import ctypes
import mmap
import os

from tests.escape.kit import Scene, named

EXPECT = "EAFNOSUPPORT"


def attack(scene: Scene) -> object:
    if os.uname().machine != "x86_64":
        return "EAFNOSUPPORT"
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x29\0\0\0\xbf\2\0\0\0\xbe\1\0\0\0\x31\xd2\x0f\x05\xc3")  # socket(2, 1, 0)
    call = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    return named(-call())
