"""Every namespace, by clone, with high bits too.

Source: V05
"""

from tests.escape.kit import Scene, asked, each

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    flags = [0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000, 0x1_1000_0000]
    return each(lambda flag: asked("clone", flag | 17, None, None, None, 0), flags)
