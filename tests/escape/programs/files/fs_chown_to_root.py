"""With WRITE: give a file of the workspace to root.

Source: V01
"""

import os

from tests.escape.kit import Scene, tried

EXPECT = ("EPERM", "EINVAL", "EOVERFLOW")
GRANTS = "read write"


def attack(scene: Scene) -> object:
    return tried(os.chown, scene.notes, 0, 0)
