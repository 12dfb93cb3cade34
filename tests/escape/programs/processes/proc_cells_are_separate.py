"""Find the processes of other cells by trying every pid.

Source: own
"""

import os

from tests.escape.kit import Scene, tried

EXPECT: list[object] = []


def attack(scene: Scene) -> object:
    own = {1, os.getpid(), os.getppid()}
    return [pid for pid in range(2, 3000) if pid not in own and tried(os.kill, pid, 0) == "ok"]
