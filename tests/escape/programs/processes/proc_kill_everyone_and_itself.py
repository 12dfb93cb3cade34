"""kill(-1) and then itself.

Source: P03
"""

import os
import signal

from tests.escape.kit import Ends, Scene, tried

EXPECT = Ends("crashed", 9)


def attack(scene: Scene) -> object:
    tried(os.kill, -1, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    return "still here"
