"""Numbers beyond those that were reviewed.

Source: CVE-2021-41133
"""

import ctypes

from tests.escape.kit import Scene, each, named

EXPECT = "ENOSYS"


def attack(scene: Scene) -> object:
    libc = ctypes.CDLL(None, use_errno=True)

    def ask(number: int) -> str:
        ctypes.set_errno(0)
        return "ok" if libc.syscall(ctypes.c_long(number), 0, 0, 0, 0, 0, 0) != -1 else named(ctypes.get_errno())

    return each(ask, [*range(470, 600), 1000, 4096, 0x3FFFFFFF])
