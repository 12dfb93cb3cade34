"""A result whose payload is of the wrong type.

Source: X15; sandbox2 RecvXFailsOnTagMismatch
"""

import time

from tests.escape.kit import Ends, Scene, send

from toolcell.testing import misbehaving

EXPECT = Ends("protocol_violation", "malformed")


def attack(scene: Scene) -> object:
    send(misbehaving.frame_of(16, misbehaving.call_number(), ["a", "list"]))
    time.sleep(1000)
    return "sent"
