"""Look for descriptors of directories or files of the host among those that are open.

Source: own
"""

import os
import stat

from tests.escape.kit import Scene

EXPECT: list[object] = []


def attack(scene: Scene) -> object:
    kinds = []
    for fd in range(64):
        try:
            mode = os.fstat(fd).st_mode
        except OSError:
            continue
        if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
            kinds.append(fd)
    return kinds
