"""Fill shared anonymous mappings in several processes.

Without a cgroup, the watch cannot read the shares of an ordinary user's processes. It takes what shared memory the
machine has more than before, so that what others free meanwhile hides as much.

Source: R05; snekbox shm tests
"""

import mmap
import os
import time

from tests.escape.kit import NO_NAMESPACES, ROOTLESS, Ends, Scene

EXPECT = Ends("limit_exceeded", "memory")
VARIES = dict.fromkeys((ROOTLESS, NO_NAMESPACES), (Ends("limit_exceeded", "memory"), Ends("timeout")))
TIMEOUT = 4.0


def attack(scene: Scene) -> object:
    for _ in range(8):
        if os.fork() == 0:
            shared = mmap.mmap(-1, 24 << 20)
            for offset in range(0, 24 << 20, 4096):
                shared[offset] = 1
            time.sleep(1000)
    time.sleep(1000)
    return "held"
