"""The interpreter is isolated: no user site, no environment, no script directory.

Source: Y25
"""

import sys

from tests.escape.kit import Scene

EXPECT = [1, 1, 1]


def attack(scene: Scene) -> object:
    return [sys.flags.isolated, sys.flags.ignore_environment, sys.flags.no_user_site]
