"""clone3, whose flags no filter can read.

Source: V05; Flatpak
"""

import ctypes
import struct

from tests.escape.kit import Scene, asked

EXPECT = "ENOSYS"


def attack(scene: Scene) -> object:
    arguments = ctypes.create_string_buffer(struct.pack("8Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0))
    return asked("clone3", arguments, 64)
