"""A pickle in place of a frame, and one as the output: bytes stay bytes.

Source: X18
"""

import pickle
import time

from tests.escape.kit import Ends, Scene, send

EXPECT = Ends("protocol_violation", "")


def attack(scene: Scene) -> object:
    send(b"\0\0\0\x10" + pickle.dumps(["cos", "system", 1, 2]))
    time.sleep(1000)
    return "sent"
