"""Lock the pipes, which the next call has as the same open files, in both ways.

Source: own; twin of finding C4
"""

import fcntl
import os
import struct

from tests.escape.kit import Scene, tried

EXPECT = "done"


def attack(scene: Scene) -> object:
    for fd in (1, 2, 4, 5):
        kind = fcntl.F_RDLCK if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY else fcntl.F_WRLCK
        tried(fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        tried(fcntl.fcntl, fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, 0, 0, 0))
    return "done"
