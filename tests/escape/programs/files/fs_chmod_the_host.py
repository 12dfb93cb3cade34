"""Change mode and times of a file of the host, by its path.

Source: F21
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "ok"}
HARM = {NO_NAMESPACES: "mode, time"}


def attack(scene: Scene) -> object:
    return all_of(mode=tried(os.chmod, scene.secret, 0o600), time=tried(os.utime, scene.secret, (1, 1)))
