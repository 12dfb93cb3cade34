"""Put another pipe in the place of the protocol's.

Source: X12
"""

import os

from tests.escape.kit import Ends, Scene, pipes

EXPECT = (Ends("timeout"), Ends("crashed"), Ends("protocol_violation"))
TIMEOUT = 0.5


def attack(scene: Scene) -> object:
    _take, give = os.pipe()
    os.dup2(give, pipes()[1])
    return "said to nobody"
