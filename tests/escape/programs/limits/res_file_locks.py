"""Thousands of locks on one file.

Source: R36
"""

import fcntl
import os

from tests.escape.kit import Scene, tried

EXPECT = ("ok", "ENOLCK")


def attack(scene: Scene) -> object:
    fd = os.open(scene.notes, os.O_RDONLY)
    return tried(lambda: [fcntl.lockf(fd, fcntl.LOCK_SH, 1, 2 * start) for start in range(2_000)])
