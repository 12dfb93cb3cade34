"""Move a file to another quota, by FS_IOC_FSSETXATTR.

Source: own
"""

import ctypes
import os

from tests.escape.kit import Scene, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return asked("ioctl", os.open(scene.notes, os.O_RDONLY), 0x401C5820, ctypes.create_string_buffer(28))
