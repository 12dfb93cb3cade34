"""See what is in the host's /tmp and /dev/shm.

Source: F39
"""

import glob
import os
import sys

from tests.escape.kit import NO_NAMESPACES, Scene, named

EXPECT: list[object] = []
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    try:
        found = [*os.listdir("/tmp"), *os.listdir("/dev/shm"), *glob.glob("/var/tmp/*")]
        mine = {part for path in (scene.workspace, sys.prefix, sys.base_prefix) for part in path.split("/")}
        return [name for name in found if name not in mine]
    except OSError as error:
        return named(error.errno or 0)
