"""Become its own children's supervisor, by a seccomp listener.

Source: V09; sandbox2
"""

import ctypes
import struct

from tests.escape.kit import Scene, asked, each

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))
    return each(lambda flags: asked("seccomp", 1, flags, program), [8, 0x1_0000_0008, 8 | 16])
