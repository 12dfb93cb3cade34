"""Resolve from the real root with openat2, whose arguments no filter can read.

Source: F42
"""

import ctypes
import os
import struct

from tests.escape.kit import Scene, asked

EXPECT = "ENOSYS"


def attack(scene: Scene) -> object:
    how = ctypes.create_string_buffer(struct.pack("QQQ", os.O_RDONLY, 0, 0))
    return asked("openat2", -100, scene.secret, how, 24)
