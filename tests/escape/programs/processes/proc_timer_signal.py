"""A POSIX timer that signals a thread of another process.

Source: own
"""

import ctypes
import signal
import struct

from tests.escape.kit import Scene, asked

EXPECT = "EINVAL"


def attack(scene: Scene) -> object:
    event = ctypes.create_string_buffer(struct.pack("QiiI", 0, signal.SIGKILL, 4, scene.canary), 64)
    return asked("timer_create", 1, event, ctypes.create_string_buffer(8))
