"""Every capability set is empty, and none can be raised.

Source: V04
"""

import ctypes
import struct

from tests.escape.kit import Scene, asked

from toolcell_sandbox.kernel.syscalls import attempt

EXPECT = [0, 0, 0, "EPERM"]


def attack(scene: Scene) -> object:
    header, data = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0)), ctypes.create_string_buffer(24)
    attempt("capget", header, data)
    words = struct.unpack("6I", data.raw)
    full = ctypes.create_string_buffer(struct.pack("6I", *[0xFFFFFFFF] * 6))
    return [words[0] | words[3], words[1] | words[4], words[2] | words[5], asked("capset", header, full)]
