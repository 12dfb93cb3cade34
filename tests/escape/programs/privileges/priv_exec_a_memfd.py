"""With EXEC: execute a file that has no path.

Source: V13; sandbox2 ExecveatNotAllowed
"""

import os

from tests.escape.kit import Scene, tried

EXPECT = "EPERM"
GRANTS = "read exec"


def attack(scene: Scene) -> object:
    return tried(os.memfd_create, "program")
