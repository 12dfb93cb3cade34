"""Close the pipe and return.

Source: X11; DMOJ closes pipes
"""

import os

from tests.escape.kit import Ends, Scene, pipes

EXPECT = Ends("protocol_violation", "")


def attack(scene: Scene) -> object:
    os.close(pipes()[1])
    return "returned"
