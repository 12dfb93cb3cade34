"""Use processor time in children, each below the limit of one.

Source: R11; isolate cg-timing
"""

import os
import time

from tests.escape.kit import Ends, Scene

EXPECT = Ends("limit_exceeded", "cpu")
LIMITS = {"cpu_s": 0.15}


def attack(scene: Scene) -> object:
    while True:
        child = os.fork()
        if child == 0:
            until = time.process_time() + 0.05
            while time.process_time() < until:
                pass
            os._exit(0)
        os.waitpid(child, 0)
