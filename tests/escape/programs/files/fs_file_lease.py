"""Hold up others who open a shared file, by a lease.

Source: own
"""

import fcntl
import json
import os

from tests.escape.kit import Scene, tried

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    fd = os.open(json.__file__, os.O_RDONLY)
    return tried(fcntl.fcntl, fd, 1024, fcntl.F_RDLCK)
