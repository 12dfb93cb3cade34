"""A result nested two thousand deep.

Source: R19; monty depth 48
"""

from tests.escape.kit import Ends, Scene

EXPECT = Ends("execution", "deep")


def attack(scene: Scene) -> object:
    nested: list[object] = []
    for _ in range(2000):
        nested = [nested]
    return nested
