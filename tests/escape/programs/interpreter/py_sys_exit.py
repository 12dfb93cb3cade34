"""sys.exit as a string, in a handler of everything.

Source: Y02
"""

import sys

from tests.escape.kit import Ends, Scene

EXPECT = Ends("crashed", 1)


def attack(scene: Scene) -> object:
    sys.exit("done")
