"""Fork, and have both answer: only the process that was called does.

Source: X08
"""

import os

from tests.escape.kit import Scene

EXPECT = "parent"


def attack(scene: Scene) -> object:
    return "child" if os.fork() == 0 else "parent"
