"""Change what only concerns itself: limits, collector, switch interval, recursion.

Source: Y27
"""

import gc
import os
import resource
import sys

from tests.escape.kit import Scene

EXPECT = "changed"


def attack(scene: Scene) -> object:
    resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
    gc.disable()
    sys.setswitchinterval(1e9)
    sys.setrecursionlimit(100)
    os.umask(0o777)
    return "changed"
