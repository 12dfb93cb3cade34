"""Huge pages.

Source: R05
"""

import mmap

from tests.escape.kit import Scene, tried

EXPECT = ("ENOMEM", "EINVAL", "EPERM", "ENODEV", "OSError")


def attack(scene: Scene) -> object:
    return tried(mmap.mmap, -1, 2 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)
