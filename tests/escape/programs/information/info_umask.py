"""Others may never write to what a call makes, even if the maker's umask is 0.

Source: own
"""

import os

from tests.escape.kit import Scene

EXPECT = 0o002


def attack(scene: Scene) -> object:
    return os.umask(0)
