"""The 32-bit system calls, whose numbers mean other calls.

Source: CVE-2017-5123 kin; sandbox2
"""

import ctypes
import mmap
import os

from tests.escape.kit import Scene, in_child

EXPECT = "signal 31"


def attack(scene: Scene) -> object:
    def foreign() -> int:
        code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(b"\x53\xb8\x14\0\0\0\xcd\x80\x5b\xc3")  # int 0x80, getpid
        return int(ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(code)))())

    return in_child(foreign) if os.uname().machine == "x86_64" else "signal 31"
