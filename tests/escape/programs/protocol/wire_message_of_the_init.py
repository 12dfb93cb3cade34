"""Say what only the init may say.

Source: X16
"""

import time

from tests.escape.kit import Ends, Scene, send

from toolcell.testing import misbehaving

EXPECT = Ends("protocol_violation", "out of place")


def attack(scene: Scene) -> object:
    send(misbehaving.frame_of(34, misbehaving.call_number(), True))
    time.sleep(1000)
    return "sent"
