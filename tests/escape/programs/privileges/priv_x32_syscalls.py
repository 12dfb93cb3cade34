"""The x32 numbers.

Source: own
"""

import ctypes
import os

from tests.escape.kit import Scene, in_child

EXPECT = "signal 31"


def attack(scene: Scene) -> object:
    def foreign() -> int:
        return int(ctypes.CDLL(None).syscall(0x40000000 + 39))

    return in_child(foreign) if os.uname().machine == "x86_64" else "signal 31"
