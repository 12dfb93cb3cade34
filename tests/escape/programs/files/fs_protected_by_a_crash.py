"""With WRITE: plant a file and crash, so that nobody looks at the result.

Source: F35
"""

import os

from tests.escape.kit import Ends, Scene, write

EXPECT = Ends("crashed", 6)
GRANTS = "read write"


def attack(scene: Scene) -> object:
    write(f"{scene.workspace}/.envrc")
    os.abort()
