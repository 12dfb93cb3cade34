"""Leave directories of mode 0 in the scratch for the sweep.

Source: F29
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = "ok"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    def lock() -> None:
        top = "/tmp/toolcell-locked"
        os.makedirs(f"{top}/b/c")
        for path in (f"{top}/b/c", f"{top}/b", top):
            os.chmod(path, 0)

    return tried(lock)
