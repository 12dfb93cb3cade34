"""Answer and go on writing progress frames of the call that is over.

Source: own
"""

import time

from tests.escape.kit import Scene, call_number, frame_of, send

EXPECT = "first"
INCIDENT = "violation"


def attack(scene: Scene) -> object:
    number = call_number()
    payload = {"output": "first", "display": "", "artifacts": [], "content": [], "values": {}}
    send(frame_of(16, number, payload) + frame_of(18, number, "late", None))
    time.sleep(1000)
    return "sent"
