"""More requests in flight than there may be.

Source: X21; monty max_suspensions
"""

import time

from tests.escape.kit import Ends, Scene, call_number, frame_of, send

EXPECT = Ends("protocol_violation", "too many requests")


def attack(scene: Scene) -> object:
    number = call_number()
    send(b"".join(frame_of(20, number, index, "nothing", {}) for index in range(1, 2000)))
    time.sleep(1000)
    return "sent"
