"""Plant a symbolic link in the scratch and read through it.

Source: F03; srt integration tests
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, read, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    try:
        os.symlink(scene.secret, "/tmp/link")
    except PermissionError:
        return tried(read, scene.secret)
    return tried(read, "/tmp/link")
