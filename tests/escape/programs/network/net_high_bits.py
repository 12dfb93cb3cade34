"""Ask for a family whose high 32 bits are set, which the kernel cuts off.

Source: N05; the class of CVE-2019-10063
"""

from tests.escape.kit import Scene, asked, each

EXPECT = "EAFNOSUPPORT"


def attack(scene: Scene) -> object:
    return each(
        lambda family: asked("socket", family, 1, 0), [0x1_0000_0002, 0x1_0000_0001, 0xFFFFFFFF_00000002, 2 | 1 << 63]
    )
