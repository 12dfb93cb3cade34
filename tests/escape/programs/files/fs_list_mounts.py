"""Ask the kernel for the mounts by the newest system calls.

Source: F16
"""

from tests.escape.kit import Scene, all_of, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return all_of(statmount=asked("statmount", None, None, 0, 0), listmount=asked("listmount", None, None, 0, 0))
