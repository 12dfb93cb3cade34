"""Hundreds of thousands of log frames.

Source: R23; nono rate limit
"""

import time

from tests.escape.kit import Ends, Scene, call_number, frame_of, send

TIMEOUT = 40.0  # the supervisor reads a hundred thousand
EXPECT = Ends("protocol_violation", "too many frames")


def attack(scene: Scene) -> object:
    one = frame_of(19, call_number(), "info", "", {})
    send(one * 150_000)
    time.sleep(1000)
    return "sent"
