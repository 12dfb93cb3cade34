"""Write its own code through /proc/self/mem.

Source: P10
"""

from tests.escape.kit import Scene, tried

EXPECT = "EACCES"


def attack(scene: Scene) -> object:
    return tried(open, "/proc/self/mem", "r+b")
