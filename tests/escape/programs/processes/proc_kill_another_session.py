"""Signal the cell of another session.

Source: P01
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, each, tried

EXPECT = "ESRCH"
VARIES = {NO_NAMESPACES: "EPERM"}


def attack(scene: Scene) -> object:
    return each(lambda number: tried(os.kill, scene.bystander, number), [0, 9, 15])
