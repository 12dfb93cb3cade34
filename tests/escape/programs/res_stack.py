"""A stack without end.

Source: R35
"""

import sys

from tests.escape.kit import Ends, Scene

EXPECT = (Ends("crashed", 11), Ends("limit_exceeded", "memory"))


def attack(scene: Scene) -> object:
    def deeper(_: int) -> int:
        return sorted([1], key=deeper)[0]

    sys.setrecursionlimit(10**9)
    return deeper(1)
