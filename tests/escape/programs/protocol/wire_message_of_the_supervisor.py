"""Say what only the supervisor may say.

Source: X16
"""

import time

from tests.escape.kit import Ends, Scene, send

from toolcell.testing import misbehaving

EXPECT = Ends("protocol_violation", "out of place")


def attack(scene: Scene) -> object:
    send(misbehaving.frame_of(1, misbehaving.call_number(), "id", "attack", {}, {}))
    time.sleep(1000)
    return "sent"
