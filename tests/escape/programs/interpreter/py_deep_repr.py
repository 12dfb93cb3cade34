"""repr of a very deep list.

Source: Y05
"""

from tests.escape.kit import Scene, tried

EXPECT = "RecursionError"


def attack(scene: Scene) -> object:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    return tried(repr, nested)
