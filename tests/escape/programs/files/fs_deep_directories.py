"""Dig a thousand directories into the scratch, with names of 200 bytes, for the sweep to climb.

Source: F29; snekbox depth_limit
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = ("ok", "ENOSPC")
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    def dig() -> None:
        os.chdir("/tmp")
        for _ in range(1000):
            os.mkdir("d" * 200)
            os.chdir("d" * 200)

    return tried(dig)
