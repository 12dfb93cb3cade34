"""Half a frame, then the end.

Source: X14
"""

import os

from tests.escape.kit import Ends, Scene, send

EXPECT = Ends("protocol_violation", "half a frame")


def attack(scene: Scene) -> object:
    send(b"\0\0\1\0\x93")
    os._exit(0)
