"""Open the memory and environment of a process of the supervisor's user.

Source: F13
"""

from tests.escape.kit import NO_NAMESPACES, Scene, each, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    return each(lambda name: tried(open, f"/proc/{scene.canary}/{name}"), ["mem", "environ", "stat", "maps", "io"])
