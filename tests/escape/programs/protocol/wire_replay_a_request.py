"""Use a request's number twice.

Source: X05
"""

import time

from tests.escape.kit import Ends, Scene, call_number, frame_of, send

EXPECT = Ends("protocol_violation", "request number")


def attack(scene: Scene) -> object:
    frame = frame_of(20, call_number(), 7, "nothing", {})
    send(frame + frame)
    time.sleep(1000)
    return "sent"
