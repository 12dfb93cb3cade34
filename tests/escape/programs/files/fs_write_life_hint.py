"""Say of shared pipes and of a shared open file how long what is written will live: it stays, and can be asked.

Source: own; fcntl(2), F_SET_RW_HINT
"""

import fcntl
import os
import struct

from tests.escape.kit import Scene, all_of, tried

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    life = struct.pack("Q", 3)
    own = os.pipe()[1]
    answers = {f"pipe {fd}": tried(fcntl.fcntl, fd, 1036, life) for fd in (0, 1, 2, own)}
    return all_of(**answers, **{f"file {fd}": tried(fcntl.fcntl, fd, 1038, life) for fd in (0, 1, 2, own)})
