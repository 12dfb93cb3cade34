"""A C call that holds the GIL for minutes.

Source: R13
"""

from tests.escape.kit import Ends, Scene

EXPECT = Ends("timeout")
TIMEOUT = 0.5


def attack(scene: Scene) -> object:
    return int(pow(7, 10**9))
