"""Watch a directory with F_NOTIFY.

Source: F37
"""

import fcntl
import os

from tests.escape.kit import Scene, tried

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    fd = os.open(scene.workspace, os.O_RDONLY)
    return tried(fcntl.fcntl, fd, fcntl.F_NOTIFY, fcntl.DN_CREATE)
