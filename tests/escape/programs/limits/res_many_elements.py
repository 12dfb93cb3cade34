"""A result of very many small parts.

Source: R20
"""

from tests.escape.kit import Ends, Scene

EXPECT = (Ends("limit_exceeded", "result"), Ends("execution", ""))


def attack(scene: Scene) -> object:
    return [None] * 3_000_000
