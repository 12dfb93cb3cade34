"""A length of one more than a frame may have.

Source: X13
"""

import struct
import time

from tests.escape.kit import Ends, Scene, send

EXPECT = Ends("protocol_violation", "frame length")


def attack(scene: Scene) -> object:
    send(struct.pack(">I", 256 * 1024 + 320 * 1024 + 1) + b"\x93")
    time.sleep(1000)
    return "sent"
