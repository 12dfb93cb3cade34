"""Return a lone surrogate.

Source: Y23; snekbox bad_unicode
"""

from tests.escape.kit import Ends, Scene

EXPECT = Ends("execution", "")


def attack(scene: Scene) -> object:
    return "\ud800"
