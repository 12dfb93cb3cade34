"""A Worker forges writes to channel and memory.

Source: X19
"""

from tests.escape.kit import Scene, call_number, each, frame_of, receive, send

EXPECT = "permission_denied"
KIND = "worker"


def attack(scene: Scene) -> object:
    number = call_number()
    names = ["channel.send", "memory.store"]

    def ask(index: int) -> str:
        send(frame_of(20, number, index + 1, names[index], {"text": "x", "kind": "fact", "tags": []}))
        return str(receive()[4]["kind"])

    return each(ask, range(2))
