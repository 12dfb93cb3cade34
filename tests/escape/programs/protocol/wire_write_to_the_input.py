"""Write to the pipe that the supervisor's frames come from.

Source: X02
"""

import os

from tests.escape.kit import Scene, pipes, tried

EXPECT = "EBADF"


def attack(scene: Scene) -> object:
    return tried(os.write, pipes()[0], b"x")
