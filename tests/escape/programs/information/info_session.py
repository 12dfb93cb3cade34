"""The session is not that of the maker, so neither is its terminal: its leader is the cell's init or the call.

Source: own
"""

import os

from tests.escape.kit import Scene

EXPECT = True


def attack(scene: Scene) -> object:
    return os.getsid(0) in (os.getppid(), os.getpid())
