"""Ask where the init keeps its list of locks.

Source: own
"""

import ctypes
import os

from tests.escape.kit import Scene, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    head, length = ctypes.c_void_p(), ctypes.c_size_t()
    return asked("get_robust_list", os.getppid(), ctypes.byref(head), ctypes.byref(length))
