"""Signal the supervisor.

Source: P01; DMOJ kill_judge
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, each, tried

EXPECT = "ESRCH"
VARIES = {NO_NAMESPACES: "EPERM"}


def attack(scene: Scene) -> object:
    return each(lambda number: tried(os.kill, scene.supervisor, number), [0, 1, 2, 9, 15, 19])
