"""Open descriptors until there are no more.

Source: R29
"""

import os

from tests.escape.kit import Ends, Scene

EXPECT = Ends("limit_exceeded", "files")


def attack(scene: Scene) -> object:
    while True:
        os.dup(0)
