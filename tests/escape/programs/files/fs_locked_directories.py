"""Leave directories of mode 0 in the scratch for the sweep.

Source: F29
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = "ok"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    def lock() -> None:
        os.makedirs("/tmp/a/b/c")
        for path in ("/tmp/a/b/c", "/tmp/a/b", "/tmp/a"):
            os.chmod(path, 0)

    return tried(lock)
