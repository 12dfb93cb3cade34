"""Link a program of the system into the scratch.

Source: F09
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = ("EXDEV", "EPERM")
VARIES = {NO_NAMESPACES: ("EXDEV", "EPERM", "EACCES")}


def attack(scene: Scene) -> object:
    return tried(os.link, "/usr/bin/env", f"/tmp/{scene.marker}")
