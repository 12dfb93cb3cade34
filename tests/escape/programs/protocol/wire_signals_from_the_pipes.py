"""Leave the protocol's pipes asynchronous, with an owner and a signal of its choice.

Source: own
"""

import fcntl
import os
import signal

from tests.escape.kit import Scene, pipes, tried

EXPECT = "done"


def attack(scene: Scene) -> object:
    for fd in pipes():
        tried(fcntl.fcntl, fd, fcntl.F_SETOWN, 1)
        tried(fcntl.fcntl, fd, 10, signal.SIGKILL)
        tried(fcntl.fcntl, fd, fcntl.F_SETFL, os.O_ASYNC)
    return "done"
