"""Allocate more than there may be, at once.

Source: R01; sandbox2 RLimitAS
"""

from tests.escape.kit import Ends, Scene

EXPECT = Ends("limit_exceeded", "memory")


def attack(scene: Scene) -> object:
    return len(bytearray(10**10))
