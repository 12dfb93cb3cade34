"""A slow frame, byte by byte, until the time is up.

Source: X14
"""

import time

from tests.escape.kit import Ends, Scene, send

EXPECT = Ends("timeout")
TIMEOUT = 0.5


def attack(scene: Scene) -> object:
    for byte in b"\0\0\1\0\x93\x10\1":
        send(bytes([byte]))
        time.sleep(0.1)
    time.sleep(1000)
    return "sent"
