"""Make the protocol's input non-blocking: forks share the flags of an open file, so the next call's too.

Source: own
"""

import os

from tests.escape.kit import Scene, pipes, tried

EXPECT = "EAGAIN"
CALLS_AFTER = 20


def attack(scene: Scene) -> object:
    fd = pipes()[0]
    os.set_blocking(fd, False)
    return tried(os.read, fd, 100)
