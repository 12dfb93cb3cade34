"""Ask with the number of an earlier call.

Source: X05
"""

import time

from tests.escape.kit import Ends, Scene, call_number, frame_of, send

EXPECT = Ends("protocol_violation", "wrong call number")


def attack(scene: Scene) -> object:
    send(frame_of(20, call_number() - 1, 1, "nothing", {}))
    time.sleep(1000)
    return "sent"
