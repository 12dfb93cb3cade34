"""The accounts of the host.

Source: I19
"""

import pwd

from tests.escape.kit import Scene, tried

EXPECT = "KeyError"


def attack(scene: Scene) -> object:
    return tried(pwd.getpwuid, 0)
