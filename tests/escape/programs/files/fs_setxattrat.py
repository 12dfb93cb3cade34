"""Set extended attributes by the system calls of Linux 6.13.

Source: F21
"""

import ctypes
import struct

from tests.escape.kit import NO_NAMESPACES, Scene, asked

EXPECT = ("EROFS", "ENOSYS", "EINVAL", "EFAULT", "EPERM", "ENOENT")
VARIES = {NO_NAMESPACES: "ok"}


def attack(scene: Scene) -> object:
    value = ctypes.create_string_buffer(b"v")
    arguments = ctypes.create_string_buffer(struct.pack("QII", ctypes.addressof(value), 1, 0))
    return asked("setxattrat", -100, scene.secret, 0, b"user.x", arguments, 16)
