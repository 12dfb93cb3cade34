"""kill(-1, SIGKILL): in its own pid namespace it finds nobody else.

Source: P03
"""

import os
import signal

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = ("ESRCH", "EPERM", "ok")  # ok: there was one, the next call's, and it got nothing
VARIES = {NO_NAMESPACES: "ok"}


def attack(scene: Scene) -> object:
    return tried(os.kill, -1, signal.SIGKILL)
