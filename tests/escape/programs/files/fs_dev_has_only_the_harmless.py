"""List /dev.

Source: F19
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, named

EXPECT = ["fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"]
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    try:
        return sorted(os.listdir("/dev"))
    except OSError as error:
        return named(error.errno or 0)
