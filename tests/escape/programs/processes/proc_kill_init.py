"""Every signal to pid 1.

Source: P05
"""

import os
import time

from tests.escape.kit import NO_LANDLOCK, Scene, tried

EXPECT = 0
VARIES = {NO_LANDLOCK: 64}


def attack(scene: Scene) -> object:
    sent = sum(tried(os.kill, 1, number) == "ok" for number in range(1, 65))
    time.sleep(0.05)
    return sent
