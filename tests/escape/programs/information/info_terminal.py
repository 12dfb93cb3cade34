"""A terminal to read from.

Source: V11
"""

import os

from tests.escape.kit import Scene

EXPECT = [False, False, False]


def attack(scene: Scene) -> object:
    return [os.isatty(fd) for fd in (0, 1, 2)]
