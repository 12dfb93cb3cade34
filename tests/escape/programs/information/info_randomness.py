"""Randomness is its own in every call, not that of the process that was forked.

Source: own
"""

import random

from tests.escape.kit import Scene

EXPECT = "differs"


def attack(scene: Scene) -> object:
    state = random.getstate()[1]
    return "differs" if len(set(state)) > 100 else "same"
