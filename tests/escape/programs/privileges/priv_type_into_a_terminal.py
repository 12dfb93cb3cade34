"""TIOCSTI, TIOCLINUX and TIOCSETD, with high bits too.

Source: V11; CVE-2017-5226
"""

from tests.escape.kit import Scene, asked, each

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return each(
        lambda number: asked("ioctl", 0, number, b"x"), [0x5412, 0x541C, 0x5423, 0x1_0000_5412, 0xFFFFFFFF_00005412]
    )
