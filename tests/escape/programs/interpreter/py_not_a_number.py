"""Return NaN and infinities: for the model they are words.

Source: Y23
"""

import math

from tests.escape.kit import Ends, Scene

EXPECT = Ends("execution", "")


def attack(scene: Scene) -> object:
    return {"nan": math.nan, "infinity": [math.inf, object()]}
