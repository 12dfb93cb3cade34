"""A length of 4 GiB.

Source: X13; sandbox2 TestSendTooMuchData
"""

import time

from tests.escape.kit import Ends, Scene, send

EXPECT = Ends("protocol_violation", "frame length")


def attack(scene: Scene) -> object:
    send(b"\xff\xff\xff\xff\x93")
    time.sleep(1000)
    return "sent"
