"""Change the working directory to the host, which Landlock does not refuse.

Source: I15
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "ok"}


def attack(scene: Scene) -> object:
    return tried(os.chdir, scene.outside)
