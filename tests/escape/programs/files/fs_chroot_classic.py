"""The old escape: keep a descriptor of the root, chroot below it, climb.

Source: F15; "breaking out of chroot", unixwiz.net
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, read, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    root = tried(os.chroot, "/tmp")
    for _ in range(64):
        os.chdir("..")
    return tried(read, scene.secret.lstrip("/")) if root != "ok" else "chroot worked"
