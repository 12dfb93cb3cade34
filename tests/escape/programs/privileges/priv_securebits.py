"""Change the secure bits.

Source: V04
"""

from tests.escape.kit import Scene, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return asked("prctl", 28, 0, 0, 0, 0)
