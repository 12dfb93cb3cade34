"""Standard input is empty.

Source: own
"""

import sys

from tests.escape.kit import Scene

EXPECT = ""


def attack(scene: Scene) -> object:
    return sys.stdin.read()
