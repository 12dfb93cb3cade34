"""Ask where the init keeps its list of locks, and where the process with one's own number does.

Source: own
"""

import ctypes
import os

from tests.escape.kit import Scene, asked, each

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    head, length = ctypes.c_void_p(), ctypes.c_size_t()
    ask = ctypes.byref(head), ctypes.byref(length)
    return each(lambda pid: asked("get_robust_list", pid, *ask), [os.getppid(), os.getpid()])
