"""Close every descriptor and stay.

Source: X11
"""

import os
import time

from tests.escape.kit import Ends, Scene

EXPECT = Ends("timeout")
TIMEOUT = 1.0  # it sleeps


def attack(scene: Scene) -> object:
    os.closerange(0, 64)
    time.sleep(1000)
    return "awake"
