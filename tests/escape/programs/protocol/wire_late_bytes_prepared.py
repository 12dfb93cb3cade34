"""Forge an answer to the next call before it has come.

Source: X09
"""

import time

from tests.escape.kit import Scene, send

from toolcell.testing import misbehaving

EXPECT = "mine"
INCIDENT = "violation"


def attack(scene: Scene) -> object:
    payload = {"output": "mine", "display": "", "artifacts": [], "content": [], "values": {}}
    number = misbehaving.call_number()
    send(
        misbehaving.frame_of(16, number, payload) + misbehaving.frame_of(16, number + 1, payload | {"output": "forged"})
    )
    time.sleep(1000)
    return "sent"
