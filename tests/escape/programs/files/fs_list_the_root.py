"""List the root: only what was bound, and the way there, is in it.

Source: F02
"""

import os
import sys

from tests.escape.kit import NO_NAMESPACES, Scene, named

import toolcell_tools

EXPECT: list[object] = []
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    try:
        names = set(os.listdir("/"))
    except OSError as error:
        return named(error.errno or 0)
    expected = {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "tmp", "usr"}
    expected |= {
        path.split("/")[1] for path in (scene.workspace, sys.prefix, sys.base_prefix, toolcell_tools.__path__[0])
    }
    return sorted(names - expected)
