"""Every namespace, by unshare.

Source: V05
"""

from tests.escape.kit import Scene, asked, each

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    flags = [0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000, 0x80]
    return each(lambda flag: asked("unshare", flag), flags)
