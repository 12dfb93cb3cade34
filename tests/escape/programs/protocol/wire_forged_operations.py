"""Ask the broker for every operation that was not granted.

Source: X03; nono session token
"""

from tests.escape.kit import Scene, call_number, each, frame_of, receive, send

EXPECT = "permission_denied"


def attack(scene: Scene) -> object:
    names = [
        "channel.send",
        "memory.search",
        "memory.store",
        "web.search",
        "web.fetch",
        "shell.run",
        "__class__",
        "",
        "x" * 10_000,
    ]
    number = call_number()

    def ask(index: int) -> str:
        send(frame_of(20, number, index + 1, names[index], {"text": "x", "query": "x", "limit": 1}))
        return str(receive()[4]["kind"])

    return each(ask, range(len(names)))
