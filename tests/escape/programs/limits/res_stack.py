"""A stack without end.

Source: R35
"""

import sys

from tests.escape.kit import Ends, Scene

# CPython 3.12 bounds recursion through C by itself, whatever the limit is set to.
EXPECT = (Ends("crashed", 11), Ends("limit_exceeded", "memory"), Ends("execution", "RecursionError"))


def attack(scene: Scene) -> object:
    def deeper(_: int) -> int:
        return sorted([1], key=deeper)[0]

    sys.setrecursionlimit(10**9)
    return deeper(1)
