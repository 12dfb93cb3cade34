"""Loop for ever.

Source: R09; snekbox timeout_returns_137
"""

from tests.escape.kit import Ends, Scene

EXPECT = Ends("timeout")
TIMEOUT = 0.5


def attack(scene: Scene) -> object:
    while True:
        pass
