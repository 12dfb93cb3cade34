"""Parse deep JSON.

Source: Y05
"""

import json

from tests.escape.kit import Scene, tried

EXPECT = "RecursionError"


def attack(scene: Scene) -> object:
    return tried(json.loads, "[" * 100_000)
