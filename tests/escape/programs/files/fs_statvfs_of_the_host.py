"""Ask for the size of the host's disks.

Source: own
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "ok"}


def attack(scene: Scene) -> object:
    return tried(os.statvfs, scene.outside)
