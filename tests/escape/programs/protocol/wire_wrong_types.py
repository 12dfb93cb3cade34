"""A result whose payload is of the wrong type.

Source: X15; sandbox2 RecvXFailsOnTagMismatch
"""

import time

from tests.escape.kit import Ends, Scene, call_number, frame_of, send

EXPECT = Ends("protocol_violation", "malformed")


def attack(scene: Scene) -> object:
    send(frame_of(16, call_number(), ["a", "list"]))
    time.sleep(1000)
    return "sent"
