"""Return a number of a hundred thousand digits.

Source: Y23
"""

from tests.escape.kit import Ends, Scene

EXPECT = Ends("execution", "64 bits")


def attack(scene: Scene) -> object:
    return 10**100_000
