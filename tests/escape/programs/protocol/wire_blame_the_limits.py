"""Claim to have exceeded a limit: the supervisor names its own figure.

Source: X24
"""

import time

from tests.escape.kit import Ends, Scene, call_number, frame_of, send

EXPECT = Ends("limit_exceeded", "memory")


def attack(scene: Scene) -> object:
    send(frame_of(17, call_number(), "memory", "MemoryError", {"limit": 1}))
    time.sleep(1000)
    return "sent"
