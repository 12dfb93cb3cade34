"""Read from address 1.

Source: Y03; snekbox sigsegv
"""

import ctypes

from tests.escape.kit import Ends, Scene

EXPECT = Ends("crashed", 11)


def attack(scene: Scene) -> object:
    return len(ctypes.string_at(1))
