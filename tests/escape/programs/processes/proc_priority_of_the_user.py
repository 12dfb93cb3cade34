"""Lower the priority of all processes of the user.

Source: own
"""

import os

from tests.escape.kit import Scene, tried

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return tried(os.setpriority, os.PRIO_USER, 0, 19)
