"""A Worker cannot write where a Main can.

Source: F23
"""

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, tried, write

EXPECT = "EROFS"
VARIES = {NO_NAMESPACES: "EACCES"}
KIND = "worker"


def attack(scene: Scene) -> object:
    return all_of(write=tried(write, scene.notes), create=tried(write, f"{scene.workspace}/x"))
