"""Random bytes on the protocol's pipe.

Source: X01; monty "every frame untrusted"
"""

import os
import time

from tests.escape.kit import Ends, Scene, send

EXPECT = Ends("protocol_violation", "")


def attack(scene: Scene) -> object:
    send(b"\0\0\0\x08" + os.urandom(4096))
    time.sleep(1000)
    return "sent"
