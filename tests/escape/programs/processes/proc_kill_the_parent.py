"""Signal the parent, which is the cell's init.

Source: P04
"""

import os
import signal

from tests.escape.kit import NO_LANDLOCK, Scene, tried

EXPECT = "EPERM"
VARIES = {NO_LANDLOCK: "ok"}


def attack(scene: Scene) -> object:
    return tried(os.kill, os.getppid(), signal.SIGTERM)
