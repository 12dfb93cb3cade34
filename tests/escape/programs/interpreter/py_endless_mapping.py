"""Return a mapping whose items never end.

Source: Y23
"""

import itertools
from typing import Any

from tests.escape.kit import Ends, Scene

EXPECT = (Ends("execution"), Ends("timeout"), Ends("limit_exceeded"), {"a": 1})
TIMEOUT = 0.6


def attack(scene: Scene) -> object:
    class Endless(dict[str, object]):
        def items(self) -> Any:
            return ((str(number), number) for number in itertools.count())

    return Endless(a=1)
