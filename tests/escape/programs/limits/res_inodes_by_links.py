"""Use up the inodes of the scratch by symbolic links and directories.

Source: R07
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = "ENOSPC"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    def fill() -> None:
        for number in range(5000):
            os.symlink("x" * 200, f"/tmp/l{number}")
            os.mkdir(f"/tmp/d{number}")

    return tried(fill)
