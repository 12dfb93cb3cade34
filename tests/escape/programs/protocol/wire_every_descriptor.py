"""Garbage on every descriptor that can be written.

Source: X01
"""

import os
import time

from tests.escape.kit import Ends, Scene, tried

EXPECT = Ends("protocol_violation", "")


def attack(scene: Scene) -> object:
    for fd in range(64):
        tried(os.write, fd, b"\0\0\0\x04garbage")
    time.sleep(1000)
    return "sent"
