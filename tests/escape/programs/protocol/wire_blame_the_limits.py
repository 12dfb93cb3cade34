"""Claim to have exceeded a limit: the supervisor names its own figure.

Source: X24
"""

import time

from tests.escape.kit import Ends, Scene, send

from toolcell.testing import misbehaving

EXPECT = Ends("limit_exceeded", "memory")


def attack(scene: Scene) -> object:
    send(misbehaving.frame_of(17, misbehaving.call_number(), "memory", "MemoryError", {"limit": 1}))
    time.sleep(1000)
    return "sent"
