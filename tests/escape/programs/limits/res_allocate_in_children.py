"""Memory in many processes, each below the limit of one.

Source: R02
"""

import os
import time

from tests.escape.kit import Ends, Scene

EXPECT = Ends("limit_exceeded", "memory")


def attack(scene: Scene) -> object:
    for _ in range(8):
        if os.fork() == 0:
            held = bytearray(os.urandom(1)) * (30 << 20)
            time.sleep(1000 + len(held))
    time.sleep(1000)
    return "held"
