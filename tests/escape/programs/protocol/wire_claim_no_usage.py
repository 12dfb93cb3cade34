"""Use processor time and claim in the payload to have used none.

Source: X25; monty host backstop
"""

import time

from tests.escape.kit import Scene, send

from toolcell.testing import misbehaving

EXPECT = "no time"
MEASURED_CPU_S = 0.15


def attack(scene: Scene) -> object:
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    payload = {"output": "no time", "display": "", "artifacts": [], "content": [], "values": {}, "usage": {"cpu_s": 0}}
    send(misbehaving.frame_of(16, misbehaving.call_number(), payload))
    time.sleep(1000)
    return "sent"
