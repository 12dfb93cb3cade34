"""Leave a daemon and crash.

Source: P15
"""

import ctypes
import os
import time

from tests.escape.kit import Ends, Scene, linger

EXPECT = Ends("crashed", 11)


def attack(scene: Scene) -> object:
    if os.fork() == 0:
        os.setsid()
        linger(scene)
    time.sleep(0.05)
    ctypes.string_at(0)
    return "alive"
