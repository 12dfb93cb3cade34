"""Change the scheduling and affinity of the init and of host processes.

Source: own
"""

import os

from tests.escape.kit import Scene, each, tried

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return each(lambda pid: tried(os.sched_setaffinity, pid, {0}), [scene.supervisor, scene.canary])
