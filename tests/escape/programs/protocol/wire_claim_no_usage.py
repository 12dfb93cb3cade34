"""Use processor time and claim in the payload to have used none.

Source: X25; monty host backstop
"""

import time

from tests.escape.kit import Scene, call_number, frame_of, send

EXPECT = "no time"
MEASURED_CPU_S = 0.15


def attack(scene: Scene) -> object:
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    payload = {"output": "no time", "display": "", "artifacts": [], "content": [], "values": {}, "usage": {"cpu_s": 0}}
    send(frame_of(16, call_number(), payload))
    time.sleep(1000)
    return "sent"
