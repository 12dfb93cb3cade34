"""Raise ambient capabilities.

Source: V04
"""

from tests.escape.kit import Scene, asked, each

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return each(lambda number: asked("prctl", 47, 2, number, 0, 0), [0, 1, 21])
