"""An object whose end sleeps.

Source: Y09
"""

import builtins
import time

from tests.escape.kit import Scene

EXPECT = "returned"


def attack(scene: Scene) -> object:
    class Stays:
        def __del__(self) -> None:
            time.sleep(1000)

    builtins.__dict__["stays"] = Stays()
    return "returned"
