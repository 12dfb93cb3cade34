"""A frame of a kind that does not exist.

Source: X15
"""

import time

from tests.escape.kit import Ends, Scene, call_number, frame_of, send

EXPECT = Ends("protocol_violation", "unknown message")


def attack(scene: Scene) -> object:
    send(frame_of(99, call_number()))
    time.sleep(1000)
    return "sent"
