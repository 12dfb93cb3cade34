"""A result with parts of wrong types.

Source: X15
"""

import time

from tests.escape.kit import Ends, Scene, call_number, frame_of, send

EXPECT = Ends("protocol_violation", "")


def attack(scene: Scene) -> object:
    payload = {"output": 1, "display": 2, "artifacts": 3, "content": 4, "values": 5}
    send(frame_of(16, call_number(), payload))
    time.sleep(1000)
    return "sent"
