"""Ask for much and read nothing of it, so that the supervisor's writes do not fit the pipe.

Source: R17; go-judge busy wait
"""

import time

from tests.escape.kit import Ends, Scene, call_number, frame_of, send

EXPECT = Ends("timeout")
TIMEOUT = 0.5
GRANTS = "memory.read"


def attack(scene: Scene) -> object:
    number = call_number()
    for request in range(1, 200):
        send(frame_of(20, number, request, "memory.search", {"query": "x" * 60_000, "limit": 5}))
    time.sleep(1000)
    return "read"
