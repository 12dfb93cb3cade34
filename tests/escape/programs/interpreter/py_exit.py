"""os._exit with a code.

Source: Y01
"""

import os

from tests.escape.kit import Ends, Scene

EXPECT = Ends("crashed", 7)


def attack(scene: Scene) -> object:
    os._exit(7)
