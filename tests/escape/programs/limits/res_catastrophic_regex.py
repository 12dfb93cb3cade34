"""A regular expression that never ends.

Source: R13
"""

import re

from tests.escape.kit import Ends, Scene

EXPECT = Ends("timeout")
TIMEOUT = 0.5


def attack(scene: Scene) -> object:
    return re.match(r"(a+)+$", "a" * 64 + "b") is None
