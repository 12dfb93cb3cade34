"""Answer and go on writing progress frames of the call that is over.

Source: own
"""

import time

from tests.escape.kit import Scene, send

from toolcell.testing import misbehaving

EXPECT = "first"
INCIDENT = "violation"


def attack(scene: Scene) -> object:
    number = misbehaving.call_number()
    payload = {"output": "first", "display": "", "artifacts": [], "content": [], "values": {}}
    send(misbehaving.frame_of(16, number, payload) + misbehaving.frame_of(18, number, "late", None))
    time.sleep(1000)
    return "sent"
