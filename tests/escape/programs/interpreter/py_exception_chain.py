"""An exception whose cause is itself, with a repr that raises.

Source: own
"""

from tests.escape.kit import Ends, Scene

EXPECT = Ends("execution", "Odd")


def attack(scene: Scene) -> object:
    class Odd(Exception):
        def __str__(self) -> str:
            raise SystemExit(3)

    odd = Odd()
    odd.__cause__ = odd
    raise odd
