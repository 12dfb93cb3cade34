"""Audit-free code in a ctypes pointer: calling libc directly is stopped by the same rules.

Source: own
"""

import ctypes

from tests.escape.kit import Scene, named

EXPECT = "EAFNOSUPPORT"


def attack(scene: Scene) -> object:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.socket(2, 1, 0)
    return named(ctypes.get_errno())
