"""The magic key.

Source: own
"""

from tests.escape.kit import NO_NAMESPACES, Scene, tried, write

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: ("EACCES", "ENOENT")}


def attack(scene: Scene) -> object:
    return tried(write, "/proc/sysrq-trigger")
