"""Keep an O_PATH descriptor of the root and open below it.

Source: F42
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    return tried(os.open, scene.secret.lstrip("/"), os.O_RDONLY, dir_fd=root)
