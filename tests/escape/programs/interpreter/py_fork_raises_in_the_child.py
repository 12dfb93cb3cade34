"""Return in the parent, raise in the child.

Source: Y19
"""

import os

from tests.escape.kit import Scene

EXPECT = "parent"


def attack(scene: Scene) -> object:
    if os.fork() == 0:
        raise ValueError("from the child")
    return "parent"
