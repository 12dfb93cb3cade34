"""Search the frames below and every object for a secret of the supervisor.

Source: Y13
"""

import gc
import sys
from typing import Any

from tests.escape.kit import Scene, secrets_in

EXPECT = 0


def attack(scene: Scene) -> object:
    found = 0
    frame: Any = sys._getframe()
    while frame is not None:
        found += secrets_in(repr(frame.f_locals).encode(errors="replace"))
        frame = frame.f_back
    for thing in gc.get_objects():
        if isinstance(thing, (dict, list)) and len(thing) < 1000:
            found += secrets_in(repr(thing).encode(errors="replace")) if type(thing) is dict and len(thing) < 50 else 0
    return found
