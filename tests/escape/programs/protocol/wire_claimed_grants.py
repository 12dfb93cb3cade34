"""Change the grants in what the runner was told of its session and ask again.

Source: X20
"""

import sys
from typing import Any

from tests.escape.kit import Scene, request

EXPECT = "permission_denied"


def attack(scene: Scene) -> object:
    frame: Any = sys._getframe()
    changed = False
    while frame is not None:
        for value in list(frame.f_locals.values()):
            session = getattr(getattr(value, "options", None), "session", None)
            if isinstance(session, dict):
                session["grants"] = ["read", "write", "channel", "net"]
                changed = True
        frame = frame.f_back
    assert changed
    return request("channel.send", {"text": "x"})["value"]["kind"]
