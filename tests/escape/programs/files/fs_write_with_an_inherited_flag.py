"""Reopen a read-only descriptor for writing, by /proc/self/fd.

Source: F24
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = "EROFS"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    fd = os.open(scene.notes, os.O_RDONLY)
    return tried(os.open, f"/proc/self/fd/{fd}", os.O_RDWR)
