"""Take another processor than it was given: allowed, as it gains nothing.

Source: own
"""

import os

from tests.escape.kit import Scene, tried

EXPECT = ("ok", "EINVAL")


def attack(scene: Scene) -> object:
    return tried(os.sched_setaffinity, 0, {0})
