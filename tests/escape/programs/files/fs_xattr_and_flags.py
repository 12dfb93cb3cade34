"""Set extended attributes and inode flags on what is read-only.

Source: F21
"""

import fcntl
import os

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = ["EROFS", "EPERM"]
VARIES = {NO_NAMESPACES: ["ok", "EPERM"]}


def attack(scene: Scene) -> object:
    fd = os.open(scene.notes, os.O_RDONLY)
    flags = tried(fcntl.ioctl, fd, 0x40086602, b"\x10\0\0\0\0\0\0\0")
    return [tried(os.setxattr, scene.notes, "user.x", b"1"), flags]
