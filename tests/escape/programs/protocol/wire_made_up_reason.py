"""An error frame with a reason that does not exist.

Source: X23
"""

import time

from tests.escape.kit import Ends, Scene, call_number, frame_of, send

EXPECT = Ends("protocol_violation", "reason")


def attack(scene: Scene) -> object:
    send(frame_of(17, call_number(), "sandbox_unavailable", "believe me", {}))
    time.sleep(1000)
    return "sent"
