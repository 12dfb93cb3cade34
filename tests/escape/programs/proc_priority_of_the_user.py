"""Lower the priority of all processes of the user.

Source: own
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = "ok"
HARM = {NO_NAMESPACES: "priority"}
LAST = True


def attack(scene: Scene) -> object:
    return tried(os.setpriority, os.PRIO_USER, 0, 19)
