"""Megabytes of log.

Source: R23
"""

import time

from tests.escape.kit import Ends, Scene, call_number, frame_of, send

EXPECT = Ends("protocol_violation", "too many bytes")


def attack(scene: Scene) -> object:
    one = frame_of(19, call_number(), "info", "x" * 15_000, {})
    send(one * 400)
    time.sleep(1000)
    return "sent"
