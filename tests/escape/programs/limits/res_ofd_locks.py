"""A lock of an open file description is kernel memory of no process (fcntl(2), F_OFD_SETLK). It is refused.

Source: own
"""

import errno
import fcntl
import os
import struct

from tests.escape.kit import Scene

F_OFD_SETLK, F_OFD_SETLKW = 37, 38
EXPECT = [errno.EINVAL, errno.EINVAL]


def attack(scene: Scene) -> object:
    lock = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 1, 0)
    file = os.open(os.devnull, os.O_RDONLY)
    found: list[int] = []
    for command in (F_OFD_SETLK, F_OFD_SETLKW):
        try:
            fcntl.fcntl(file, command, lock)
            found.append(0)
        except OSError as error:
            found.append(error.errno or -1)
    return found
