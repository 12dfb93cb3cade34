"""Close every descriptor and return.

Source: X11
"""

import os

from tests.escape.kit import Ends, Scene

EXPECT = Ends("protocol_violation", "")


def attack(scene: Scene) -> object:
    os.closerange(0, 64)
    return "returned"
