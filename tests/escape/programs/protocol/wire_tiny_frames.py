"""Hundreds of thousands of log frames.

Source: R23; nono rate limit
"""

import time

from tests.escape.kit import Ends, Scene, send

from toolcell.testing import misbehaving

TIMEOUT = 40.0  # the supervisor reads a hundred thousand
EXPECT = Ends("protocol_violation", "too many frames")


def attack(scene: Scene) -> object:
    one = misbehaving.frame_of(19, misbehaving.call_number(), "info", "", {})
    send(one * 150_000)
    time.sleep(1000)
    return "sent"
