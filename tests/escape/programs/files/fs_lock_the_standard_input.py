"""Lock standard input, which a zygote's cells might share, beyond the end of the call, in both ways.

Source: finding C4 of an examination of this sandbox
"""

import fcntl
import os
import struct

from tests.escape.kit import Scene, tried

EXPECT = ["ok", "EINVAL"]
LAST = True


def attack(scene: Scene) -> object:
    whole = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    return [tried(fcntl.flock, 0, fcntl.LOCK_EX | fcntl.LOCK_NB), tried(fcntl.fcntl, 0, fcntl.F_OFD_SETLK, whole)]
