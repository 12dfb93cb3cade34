"""List directories of the host.

Source: F02
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, each, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    return each(lambda path: tried(os.listdir, path), [scene.outside, "/var", "/home", "/etc/init.d", "/boot"])
