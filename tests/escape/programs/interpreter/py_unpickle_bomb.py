"""Return an object whose pickle would run code: nothing that comes out is ever unpickled.

Source: own
"""

import os
from typing import Any

from tests.escape.kit import Ends, Scene

EXPECT = Ends("execution", "")


def attack(scene: Scene) -> object:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, ("touch /tmp/owned",)

    return Bomb()
