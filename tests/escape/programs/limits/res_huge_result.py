"""A result larger than it may be.

Source: R20
"""

from tests.escape.kit import Ends, Scene

EXPECT = Ends("limit_exceeded", "result")


def attack(scene: Scene) -> object:
    return "x" * (4 << 20)
