"""Become a subreaper, to keep children from the init.

Source: P25
"""

import os
import time

from tests.escape.kit import Scene, linger

from toolcell_sandbox.kernel.syscalls import attempt

EXPECT = "left"


def attack(scene: Scene) -> object:
    attempt("prctl", 36, 1, 0, 0, 0)
    if os.fork() == 0:
        if os.fork() == 0:
            linger(scene)
        os._exit(0)
    time.sleep(0.05)
    return "left"
