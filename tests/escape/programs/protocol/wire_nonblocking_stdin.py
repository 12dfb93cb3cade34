"""Change the flags of standard input, which a zygote's cells might share, over the borders of sessions.

Source: own
"""

import fcntl
import os

from tests.escape.kit import Scene, tried

EXPECT = "done"
LAST = True


def attack(scene: Scene) -> object:
    tried(fcntl.fcntl, 0, fcntl.F_SETOWN, 1)
    os.set_blocking(0, False)
    return "done"
