"""Children that nobody waits for.

Source: P21; snekbox test_multiprocess
"""

import os

from tests.escape.kit import Ends, Scene

EXPECT = Ends("limit_exceeded", "processes")


def attack(scene: Scene) -> object:
    while True:
        if os.fork() == 0:
            os._exit(0)
