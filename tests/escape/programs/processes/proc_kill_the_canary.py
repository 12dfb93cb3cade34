"""Signal a process of the supervisor's user.

Source: P01
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, each, tried

EXPECT = "ESRCH"
VARIES = {NO_NAMESPACES: "EPERM"}


def attack(scene: Scene) -> object:
    return each(lambda number: tried(os.kill, scene.canary, number), [0, 1, 9, 10, 15])
