"""Look for a socket among the descriptors that were there at the start.

Source: N15; the leaks of runc
"""

import os
import stat

from tests.escape.kit import Scene, tried

EXPECT: list[object] = []


def attack(scene: Scene) -> object:
    return [fd for fd in range(64) if tried(os.fstat, fd) == "ok" and stat.S_ISSOCK(os.fstat(fd).st_mode)]
