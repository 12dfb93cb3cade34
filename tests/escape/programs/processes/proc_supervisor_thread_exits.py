"""Go on while time passes: the thread of the supervisor that made the cell is the loop's and lives on.

Source: P19
"""

import time

from tests.escape.kit import Scene

EXPECT = "alive"


def attack(scene: Scene) -> object:
    time.sleep(0.3)
    return "alive"
