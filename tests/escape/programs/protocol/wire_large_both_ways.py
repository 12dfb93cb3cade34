"""A large result while the supervisor sends large replies.

Source: X27
"""

from tests.escape.kit import Scene, call_number, frame_of, send

EXPECT = 150000
GRANTS = "memory.read"


def attack(scene: Scene) -> object:
    number = call_number()
    for request in range(1, 20):
        send(frame_of(20, number, request, "memory.search", {"query": "x" * 100_000, "limit": 5}))
    return "x" * 150_000 and 150_000
