"""Return in parent and child.

Source: Y19
"""

import os

from tests.escape.kit import Scene

EXPECT = "parent"


def attack(scene: Scene) -> object:
    return "parent" if os.fork() else "child"
