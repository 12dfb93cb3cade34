"""Lower the priority of the host's processes.

Source: own
"""

import os

from tests.escape.kit import Scene, tried

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return tried(os.setpriority, os.PRIO_PROCESS, scene.canary, 18)
