"""Without READ and WRITE the workspace is not even there.

Source: F23
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, read, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}
GRANTS = "memory.read"


def attack(scene: Scene) -> object:
    return all_of(read=tried(read, scene.notes), list=tried(os.listdir, scene.workspace))
