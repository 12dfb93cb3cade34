"""Root's groups are not its own.

Source: V03
"""

import os

from tests.escape.kit import Scene

EXPECT = False


def attack(scene: Scene) -> object:
    return 0 in os.getgroups()
