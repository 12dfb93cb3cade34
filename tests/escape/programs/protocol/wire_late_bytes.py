"""Bytes after the answer, from a process that was left.

Source: X09
"""

import os
import time

from tests.escape.kit import Scene, send

EXPECT = "answered"


def attack(scene: Scene) -> object:
    if os.fork() == 0:
        time.sleep(0.02)
        while True:
            send(bytes(64))
    return "answered"
