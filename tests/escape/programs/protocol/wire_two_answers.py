"""Answer twice: the first one counts.

Source: X07
"""

from tests.escape.kit import Scene, call_number, frame_of, send

EXPECT = "first"
INCIDENT = "second result"


def attack(scene: Scene) -> object:
    payload = {"output": "first", "display": "", "artifacts": [], "content": [], "values": {}}
    number = call_number()
    send(frame_of(16, number, payload) + frame_of(16, number, payload | {"output": "second"}))
    return "third"
