"""An audit hook that refuses everything the runner does after the tool.

Source: Y15
"""

import sys

from tests.escape.kit import Ends, Scene

EXPECT = (Ends("crashed"), Ends("execution"), Ends("timeout"), Ends("protocol_violation"), "hooked")
TIMEOUT = 0.6


def attack(scene: Scene) -> object:
    def refuse(event: str, _: object) -> None:
        raise RuntimeError(event)

    sys.addaudithook(refuse)
    return "hooked"
