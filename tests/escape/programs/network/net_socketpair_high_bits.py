"""A socketpair of another family, or of datagrams, with high bits set.

Source: N05
"""

import ctypes

from tests.escape.kit import Scene, asked, each

EXPECT = "EAFNOSUPPORT"


def attack(scene: Scene) -> object:
    pair = ctypes.create_string_buffer(8)
    kinds = [(2, 1), (0x1_0000_0002, 1), (1, 2), (1, 0x1_0000_0002), (1, 2 | 0o4000), (1, 3), (40, 1)]
    return each(lambda kind: asked("socketpair", *kind, 0, pair), kinds)
