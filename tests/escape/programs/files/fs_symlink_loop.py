"""A link to itself is an error and not a hang.

Source: F10
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, read, tried

EXPECT = "ELOOP"
VARIES = {NO_NAMESPACES: ("ELOOP", "EACCES")}


def attack(scene: Scene) -> object:
    made = tried(os.symlink, "/tmp/loop", "/tmp/loop")
    return tried(read, "/tmp/loop") if made == "ok" else made
