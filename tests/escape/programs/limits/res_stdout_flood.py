"""Write to stdout and stderr without end.

Source: R15; snekbox stdout_flood
"""

import os

from tests.escape.kit import Ends, Scene

EXPECT = Ends("limit_exceeded", "output")


def attack(scene: Scene) -> object:
    while True:
        os.write(1, b"o" * 65536)
        os.write(2, b"e" * 65536)
