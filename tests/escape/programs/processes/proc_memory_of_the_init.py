"""Read and write /proc/1/mem, its environment and its maps.

Source: P10
"""

import os

from tests.escape.kit import Scene, each, tried

EXPECT = ("ENOENT", "EACCES")


def attack(scene: Scene) -> object:
    return each(lambda name: tried(open, f"/proc/{os.getppid()}/{name}", "rb"), ["mem", "maps", "environ"])
