"""Fork until the kernel refuses: not many times.

Source: P11
"""

import os
import signal

from tests.escape.kit import NO_CGROUP, NO_LANDLOCK, ROOTLESS, Ends, Scene

EXPECT = True
VARIES = dict.fromkeys((ROOTLESS, NO_CGROUP, NO_LANDLOCK), (True, Ends("limit_exceeded", "processes")))


def attack(scene: Scene) -> object:
    count = 0
    try:
        while count < 100:
            if os.fork() == 0:
                signal.pause()
            count += 1
    except BlockingIOError:
        pass
    return count < 70
