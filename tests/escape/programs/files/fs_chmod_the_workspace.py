"""Without WRITE: change mode and times of the workspace's files.

Source: F21
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, tried

EXPECT = "EROFS"
VARIES = {NO_NAMESPACES: "ok"}
HARM = {NO_NAMESPACES: "mode, time"}


def attack(scene: Scene) -> object:
    return all_of(mode=tried(os.chmod, scene.notes, 0o600), time=tried(os.utime, scene.notes, (1, 1)))
