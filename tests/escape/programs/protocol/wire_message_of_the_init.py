"""Say what only the init may say.

Source: X16
"""

import time

from tests.escape.kit import Ends, Scene, call_number, frame_of, send

EXPECT = Ends("protocol_violation", "out of place")


def attack(scene: Scene) -> object:
    send(frame_of(34, call_number(), True))
    time.sleep(1000)
    return "sent"
