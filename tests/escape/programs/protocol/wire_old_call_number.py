"""Ask with the number of an earlier call.

Source: X05
"""

import time

from tests.escape.kit import Ends, Scene, send

from toolcell.testing import misbehaving

EXPECT = Ends("protocol_violation", "wrong call number")


def attack(scene: Scene) -> object:
    send(misbehaving.frame_of(20, misbehaving.call_number() - 1, 1, "nothing", {}))
    time.sleep(1000)
    return "sent"
