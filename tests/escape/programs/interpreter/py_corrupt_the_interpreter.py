"""Overwrite the interpreter's own objects.

Source: Y03
"""

import ctypes

from tests.escape.kit import Ends, Scene

EXPECT = (Ends("crashed"), Ends("execution"), Ends("timeout"), Ends("limit_exceeded"), Ends("protocol_violation"))
TIMEOUT = 2.0


def attack(scene: Scene) -> object:
    for value in (None, (), 0, "", True):
        ctypes.memset(id(value), 0xFF, 16)
    return repr([None, (), 0])
