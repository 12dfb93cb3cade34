"""Grow the buffers of many pipes.

Source: R29
"""

import fcntl
import os

from tests.escape.kit import Scene, tried

EXPECT = ("ok", "EPERM", "EMFILE", "EBUSY")


def attack(scene: Scene) -> object:
    def grow() -> None:
        for _ in range(20):
            _take, give = os.pipe()
            fcntl.fcntl(give, 1031, 1 << 20)

    return tried(grow)
