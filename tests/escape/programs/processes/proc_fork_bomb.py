"""A fork bomb, in a cell whose maker may be uid 0.

Source: P11
"""

import os

from tests.escape.kit import NO_NAMESPACES, Ends, Scene, tried

EXPECT = Ends("limit_exceeded", "processes")
VARIES = {NO_NAMESPACES: (Ends("limit_exceeded", "processes"), Ends("limit_exceeded", "memory"), Ends("timeout"))}


def attack(scene: Scene) -> object:
    while True:
        tried(os.fork)
