"""Leave a daemon and hang.

Source: P15
"""

import os
import time

from tests.escape.kit import Ends, Scene, linger

EXPECT = Ends("timeout")
TIMEOUT = 1.0  # it sleeps


def attack(scene: Scene) -> object:
    if os.fork() == 0:
        os.setsid()
        linger(scene)
    time.sleep(1000)
    return "awake"
