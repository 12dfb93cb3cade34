"""Replace what the runner needs to answer.

Source: own
"""

import builtins

from tests.escape.kit import Ends, Scene

EXPECT = (Ends("crashed"), Ends("execution"), Ends("timeout"), Ends("protocol_violation"))
TIMEOUT = 0.6


def attack(scene: Scene) -> object:
    for name in ("len", "isinstance", "type", "sum", "map", "str"):
        builtins.__dict__[name] = None
    return "replaced"
