"""Link a read-only file of the workspace into the scratch, to write to it there.

Source: F09
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = "EXDEV"
VARIES = {NO_NAMESPACES: ("EXDEV", "EACCES")}


def attack(scene: Scene) -> object:
    return tried(os.link, scene.notes, "/tmp/notes")
