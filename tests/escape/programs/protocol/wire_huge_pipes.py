"""Make the pipes as large as they may be, so that the supervisor reads in other portions.

Source: own
"""

import fcntl

from tests.escape.kit import Scene, pipes, tried

EXPECT = "done"


def attack(scene: Scene) -> object:
    for fd in (1, 2, pipes()[1]):
        tried(fcntl.fcntl, fd, 1031, 1 << 20)
    return "done"
