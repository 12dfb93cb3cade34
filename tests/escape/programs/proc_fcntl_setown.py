"""Have the kernel send SIGIO and SIGKILL to others, by F_SETOWN and F_SETSIG.

Source: own
"""

import fcntl
import os
import signal

from tests.escape.kit import Scene, tried

EXPECT = "not signalled"


def attack(scene: Scene) -> object:
    take, give = os.pipe()
    for pid in (1, scene.canary, scene.supervisor):
        tried(fcntl.fcntl, take, fcntl.F_SETOWN, pid)
        tried(fcntl.fcntl, take, 10, signal.SIGKILL)
        tried(fcntl.fcntl, take, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        os.write(give, b"x")
    return "not signalled"
