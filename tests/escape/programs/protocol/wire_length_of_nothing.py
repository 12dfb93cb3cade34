"""A length of 0.

Source: X13
"""

import time

from tests.escape.kit import Ends, Scene, send

EXPECT = Ends("protocol_violation", "frame length")


def attack(scene: Scene) -> object:
    send(bytes(8))
    time.sleep(1000)
    return "sent"
