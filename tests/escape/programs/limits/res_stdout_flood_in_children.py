"""Write to stdout from many processes.

Source: R15
"""

import os

from tests.escape.kit import Ends, Scene

EXPECT = Ends("limit_exceeded", "output")


def attack(scene: Scene) -> object:
    for _ in range(3):
        os.fork()
    while True:
        os.write(1, b"o" * 4096)
