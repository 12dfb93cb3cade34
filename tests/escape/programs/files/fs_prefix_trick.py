"""Reach a directory whose name begins like the workspace's.

Source: F07; go-judge RejectsPrefixBoundaryEscape
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, read, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    return all_of(read=tried(read, scene.workspace + "x/secret.txt"), list=tried(os.listdir, scene.workspace + "x"))
