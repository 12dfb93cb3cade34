"""A frame of a kind that does not exist.

Source: X15
"""

import time

from tests.escape.kit import Ends, Scene, send

from toolcell.testing import misbehaving

EXPECT = Ends("protocol_violation", "unknown message")


def attack(scene: Scene) -> object:
    send(misbehaving.frame_of(99, misbehaving.call_number()))
    time.sleep(1000)
    return "sent"
