"""Orphans that end at once: the init reaps them and nothing is used up.

Source: P21
"""

import os
import time

from tests.escape.kit import Scene

EXPECT = 40


def attack(scene: Scene) -> object:
    done = 0
    for _ in range(40):
        child = os.fork()
        if child == 0:
            try:
                os.fork()
            except OSError:
                os._exit(1)
            os._exit(0)
        done += os.waitpid(child, 0)[1] == 0
        time.sleep(0.002)
    return done
