"""Make standard output and error non-blocking, for a later call to lose what it prints.

Source: own
"""

import os

from tests.escape.kit import Scene

EXPECT = "done"


def attack(scene: Scene) -> object:
    for fd in (1, 2):
        os.set_blocking(fd, False)
    return "done"
