"""A crash leaves no core file.

Source: I13; DMOJ core 0
"""

import glob
import os

from tests.escape.kit import Scene

EXPECT = [0, True]


def attack(scene: Scene) -> object:
    child = os.fork()
    if child == 0:
        os.chdir("/tmp")
        os.abort()
    _pid, status = os.waitpid(child, 0)
    return [len(glob.glob("/tmp/core*")), not os.WCOREDUMP(status)]
