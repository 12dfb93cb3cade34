"""With WRITE: plant a file in a directory that nobody can look into.

Source: F35
"""

import os

from tests.escape.kit import Scene, Told, write

EXPECT = Told("shut/.envrc")
GRANTS = "read write"


def attack(scene: Scene) -> object:
    os.mkdir(f"{scene.workspace}/shut")
    write(f"{scene.workspace}/shut/.envrc")
    os.chmod(f"{scene.workspace}/shut", 0)
    return "planted"
