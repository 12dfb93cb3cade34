"""Fill shared anonymous mappings in several processes.

Source: R05; snekbox shm tests
"""

import mmap
import os
import time

from tests.escape.kit import Ends, Scene

EXPECT = Ends("limit_exceeded", "memory")


def attack(scene: Scene) -> object:
    for _ in range(8):
        if os.fork() == 0:
            shared = mmap.mmap(-1, 24 << 20)
            for offset in range(0, 24 << 20, 4096):
                shared[offset] = 1
            time.sleep(1000)
    time.sleep(1000)
    return "held"
