"""A result with bytes in it, which JSON does not have: whoever writes the result down would fail.

Source: own
"""

import time

from tests.escape.kit import Ends, Scene, send

from toolcell.testing import misbehaving

EXPECT = Ends("protocol_violation", "bytes: only a request may hold them")


def attack(scene: Scene) -> object:
    send(misbehaving.frame_of(16, misbehaving.call_number(), {"output": [b"\xff"], "display": ""}))
    time.sleep(1000)
    return "sent"
