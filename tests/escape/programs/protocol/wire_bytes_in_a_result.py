"""A result with bytes in it, which JSON does not have: whoever writes the result down would fail.

Source: own
"""

import time

from tests.escape.kit import Ends, Scene, call_number, frame_of, send

EXPECT = Ends("protocol_violation", "bytes: only a request may hold them")


def attack(scene: Scene) -> object:
    send(frame_of(16, call_number(), {"output": [b"\xff"], "display": ""}))
    time.sleep(1000)
    return "sent"
