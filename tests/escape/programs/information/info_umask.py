"""The umask is not that of the maker.

Source: own
"""

import os

from tests.escape.kit import Scene

EXPECT = 0o022


def attack(scene: Scene) -> object:
    return os.umask(0)
