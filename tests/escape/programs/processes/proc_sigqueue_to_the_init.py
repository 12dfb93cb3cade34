"""A realtime signal with a value to the init.

Source: own
"""

import ctypes
import os
import struct

from tests.escape.kit import NO_LANDLOCK, Scene, asked

EXPECT = "EPERM"
VARIES = {NO_LANDLOCK: "ok"}


def attack(scene: Scene) -> object:
    information = ctypes.create_string_buffer(struct.pack("iii", 34, 0, -1), 128)
    return asked("rt_sigqueueinfo", os.getppid(), 34, information)
