"""Megabytes of log.

Source: R23
"""

import time

from tests.escape.kit import Ends, Scene, send

from toolcell.testing import misbehaving

EXPECT = Ends("protocol_violation", "too many bytes")


def attack(scene: Scene) -> object:
    one = misbehaving.frame_of(19, misbehaving.call_number(), "info", "x" * 15_000, {})
    send(one * 400)
    time.sleep(1000)
    return "sent"
