"""Use a request's number twice.

Source: X05
"""

import time

from tests.escape.kit import Ends, Scene, send

from toolcell.testing import misbehaving

EXPECT = Ends("protocol_violation", "request number")


def attack(scene: Scene) -> object:
    frame = misbehaving.frame_of(20, misbehaving.call_number(), 7, "nothing", {})
    send(frame + frame)
    time.sleep(1000)
    return "sent"
