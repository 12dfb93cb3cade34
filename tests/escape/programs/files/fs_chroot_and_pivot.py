"""Change the root.

Source: F15
"""

import os

from tests.escape.kit import Scene, all_of, asked, tried

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return all_of(chroot=tried(os.chroot, "/tmp"), pivot=asked("pivot_root", ".", "."))
