"""Ask for a granted operation with arguments of wrong types and sizes.

Source: X03
"""

from tests.escape.kit import Scene, call_number, each, frame_of, receive, send

EXPECT = "execution"
GRANTS = "memory.read"


def attack(scene: Scene) -> object:
    number = call_number()
    wrong: list[dict[str, object]] = [
        {},
        {"query": 1, "limit": 1},
        {"query": "x", "limit": 10**9},
        {"query": "x", "limit": True},
        {"query": "x", "limit": -1},
        {"query": None},
        {"query": "x" * 300_000, "limit": 1},
    ]

    def ask(index: int) -> str:
        send(frame_of(20, number, index + 1, "memory.search", wrong[index]))
        return str(receive()[4]["kind"])

    return each(ask, range(len(wrong)))
