"""Answer twice: the first one counts.

Source: X07
"""

from tests.escape.kit import Scene, send

from toolcell.testing import misbehaving

EXPECT = "first"
INCIDENT = "second result"


def attack(scene: Scene) -> object:
    payload = {"output": "first", "display": "", "artifacts": [], "content": [], "values": {}}
    number = misbehaving.call_number()
    send(misbehaving.frame_of(16, number, payload) + misbehaving.frame_of(16, number, payload | {"output": "second"}))
    return "third"
