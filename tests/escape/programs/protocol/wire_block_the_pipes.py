"""Make the protocol's output tiny, and answer: the size of a pipe is shared too.

Source: own
"""

import fcntl

from tests.escape.kit import Scene, pipes, tried

EXPECT = "answered"


def attack(scene: Scene) -> object:
    _take, give = pipes()
    tried(fcntl.fcntl, give, 1031, 4096)
    return "answered"
