"""Lock a file that all sessions can read: allowed, for no honest program locks those, and gone with the call.

Source: own
"""

import fcntl
import json
import os

from tests.escape.kit import Scene, tried

EXPECT = "ok"


def attack(scene: Scene) -> object:
    fd = os.open(json.__file__, os.O_RDONLY)
    return tried(fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
