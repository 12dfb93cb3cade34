"""Read a world-readable file of the host by its absolute path.

Source: F01
"""

from tests.escape.kit import NO_NAMESPACES, Scene, read, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    return tried(read, scene.secret)
