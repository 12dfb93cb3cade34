"""Forge an answer to the next call before it has come.

Source: X09
"""

import time

from tests.escape.kit import Scene, call_number, frame_of, send

EXPECT = "mine"
INCIDENT = "violation"


def attack(scene: Scene) -> object:
    payload = {"output": "mine", "display": "", "artifacts": [], "content": [], "values": {}}
    number = call_number()
    send(frame_of(16, number, payload) + frame_of(16, number + 1, payload | {"output": "forged"}))
    time.sleep(1000)
    return "sent"
