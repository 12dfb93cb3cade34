"""Read through a link that the workspace holds already.

Source: F03
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, read, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    return all_of(
        file=tried(read, f"{scene.workspace}/to_secret"), tree=tried(os.listdir, f"{scene.workspace}/to_outside")
    )
