"""Break json, msgpack, os.write and the runner for whoever comes next.

Source: Y11; monty discard
"""

import json
import sys

from tests.escape.kit import Ends, Scene, send

EXPECT = Ends("protocol_violation", "")


def attack(scene: Scene) -> object:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("patched")

    json.dumps = broken  # type: ignore[assignment]
    sys.modules["toolcell.runner.perform"].__dict__["flush"] = lambda *_: send(bytes(8))
    return "patched"
