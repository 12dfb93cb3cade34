"""Leave several, each the parent of the next, that have closed every descriptor.

Source: P15
"""

import os
import time

from tests.escape.kit import Scene, linger

EXPECT = "left"


def attack(scene: Scene) -> object:
    if os.fork() == 0:
        for _ in range(5):
            os.setsid() if os.getpid() != os.getsid(0) else None
            if os.fork():
                linger(scene)
        os.closerange(0, 64)
        linger(scene)
    time.sleep(0.1)
    return "left"
