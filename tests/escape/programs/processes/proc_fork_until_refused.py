"""Fork until the kernel refuses: not many times.

Source: P11
"""

import os
import signal

from tests.escape.kit import NO_CGROUP, NO_LANDLOCK, NO_NAMESPACES, ROOTLESS, Ends, Scene

EXPECT = True
VARIES = dict.fromkeys((ROOTLESS, NO_CGROUP, NO_LANDLOCK), (True, Ends("limit_exceeded", "processes"))) | {
    NO_NAMESPACES: (True, Ends("limit_exceeded", "processes"), Ends("limit_exceeded", "memory"))  # of 60, by the watch
}


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
