"""Change the grants in the runner's own context and ask again.

Source: X20
"""

import sys
from typing import Any

from tests.escape.kit import Scene, request

EXPECT = "permission_denied"


def attack(scene: Scene) -> object:
    frame: Any = sys._getframe()
    while frame is not None:
        for value in list(frame.f_locals.values()):
            if hasattr(value, "context") and isinstance(getattr(value, "context", None), dict):
                value.context["grants"] = ["read", "write", "channel", "net"]
        frame = frame.f_back
    return request("channel.send", {"text": "x"})["value"]["kind"]
