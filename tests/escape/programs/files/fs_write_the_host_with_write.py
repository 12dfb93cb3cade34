"""With WRITE, which is for the workspace: write to the host beside it.

Source: F28
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, tried, write

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}
GRANTS = "read write"


def attack(scene: Scene) -> object:
    at = scene.outside
    return all_of(
        write=tried(write, scene.secret),
        create=tried(write, f"{at}/new"),
        move=tried(os.rename, scene.notes, f"{at}/n"),
    )
