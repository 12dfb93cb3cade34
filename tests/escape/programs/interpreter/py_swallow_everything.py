"""Catch whatever is raised in it and go on.

Source: Y07
"""

import time

from tests.escape.kit import Ends, Scene

EXPECT = Ends("timeout")
TIMEOUT = 0.5


def attack(scene: Scene) -> object:
    while True:
        try:
            time.sleep(1)
        except BaseException:
            continue
