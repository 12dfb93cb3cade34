"""Exit with 0 and give no answer.

Source: P29
"""

import os

from tests.escape.kit import Ends, Scene

EXPECT = Ends("crashed", 0)


def attack(scene: Scene) -> object:
    os._exit(0)
