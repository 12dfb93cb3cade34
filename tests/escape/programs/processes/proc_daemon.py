"""Leave a daemon: two forks, a session of its own, all signals blocked.

Source: P15
"""

import os
import time

from tests.escape.kit import Scene, linger

EXPECT = "left"


def attack(scene: Scene) -> object:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            linger(scene)
        os._exit(0)
    time.sleep(0.1)
    return "left"
