"""Signal process groups and sessions of the host.

Source: P02
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = "ESRCH"
VARIES = {NO_NAMESPACES: ("EPERM", "ESRCH")}


def attack(scene: Scene) -> object:
    found = {tried(os.killpg, group, 9) for group in (scene.supervisor, scene.canary, scene.bystander)}
    return found.pop() if len(found) == 1 else "EPERM" if found == {"EPERM", "ESRCH"} else sorted(found)
