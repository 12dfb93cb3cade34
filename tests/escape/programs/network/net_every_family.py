"""A socket of each family there could be.

Source: N11
"""

from tests.escape.kit import Scene, asked, each

EXPECT = "EAFNOSUPPORT"


def attack(scene: Scene) -> object:
    return each(lambda family: asked("socket", family, 1, 0), range(64))
