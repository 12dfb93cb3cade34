"""SIGSTOP to itself, for the supervisor to wait.

Source: P06
"""

import os
import signal

from tests.escape.kit import Ends, Scene

EXPECT = Ends("timeout")
TIMEOUT = 1.0  # it sleeps


def attack(scene: Scene) -> object:
    os.kill(os.getpid(), signal.SIGSTOP)
    return "continued"
