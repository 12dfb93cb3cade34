"""Lower the priority of the host's processes.

Source: own
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = "ESRCH"
VARIES = {NO_NAMESPACES: "ok"}
HARM = {NO_NAMESPACES: "priority"}
LAST = True


def attack(scene: Scene) -> object:
    return tried(os.setpriority, os.PRIO_PROCESS, scene.canary, 18)
