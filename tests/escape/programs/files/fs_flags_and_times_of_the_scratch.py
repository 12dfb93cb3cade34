"""Leave inode flags, which files in it inherit, and times on the scratch directory.

Source: own; ioctl_iflags(2)
"""

import fcntl
import os
import struct

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = ["EPERM", "ok"]
VARIES = {NO_NAMESPACES: ["EACCES", "EPERM"]}


def attack(scene: Scene) -> object:
    def set_flags() -> None:
        fd = os.open("/tmp", os.O_RDONLY)
        fcntl.ioctl(fd, 0x40086602, struct.pack("Q", 0xC0))  # nodump, noatime

    return [tried(set_flags), tried(os.utime, "/tmp", (1, 1))]
