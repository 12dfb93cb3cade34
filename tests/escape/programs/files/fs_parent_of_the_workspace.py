"""Leave the workspace by its parent, and see who else is there.

Source: F07
"""

import os

from tests.escape.kit import NO_LANDLOCK, NO_NAMESPACES, Scene, named

EXPECT: list[object] = []
VARIES = {NO_NAMESPACES: "EACCES", NO_LANDLOCK: []}


def attack(scene: Scene) -> object:
    os.chdir(scene.workspace)
    try:
        return sorted(set(os.listdir("..")) - {os.path.basename(scene.workspace)})
    except OSError as error:
        return named(error.errno or 0)
