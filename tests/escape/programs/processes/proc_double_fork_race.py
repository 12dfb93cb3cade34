"""Fork in a loop, each child the parent of the next, to outrun whoever kills them.

Source: P15
"""

import os
import time

from tests.escape.kit import Scene, linger

EXPECT = "left"


def attack(scene: Scene) -> object:
    if os.fork() == 0:
        until = time.monotonic() + 5
        while time.monotonic() < until:
            try:
                if os.fork():
                    os._exit(0)
            except OSError:
                continue
        linger(scene)
    time.sleep(0.05)
    return "left"
