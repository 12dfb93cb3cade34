"""Truncate a file of the host that all may write.

Source: F27
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    return all_of(
        open=tried(os.open, scene.secret, os.O_WRONLY | os.O_TRUNC), truncate=tried(os.truncate, scene.secret, 0)
    )
