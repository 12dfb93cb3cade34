"""A filter of its own, which can only take away.

Source: V09
"""

import ctypes
import struct

from tests.escape.kit import Scene, asked

EXPECT = ["ok", "EAFNOSUPPORT"]


def attack(scene: Scene) -> object:
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))
    return [asked("seccomp", 1, 0, program), asked("socket", 2, 1, 0)]
