"""Map pages into a pipe.

Source: own
"""

from tests.escape.kit import Scene, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return asked("vmsplice", 1, None, 0, 0)
