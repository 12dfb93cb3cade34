"""Return a generator.

Source: Y23
"""

from tests.escape.kit import Ends, Scene

EXPECT = Ends("execution", "generator")


def attack(scene: Scene) -> object:
    return (number for number in range(3))
