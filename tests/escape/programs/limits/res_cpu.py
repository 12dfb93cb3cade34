"""Use more processor time than there may be, and ignore SIGXCPU.

Source: R09
"""

import signal

from tests.escape.kit import Ends, Scene

EXPECT = Ends("limit_exceeded", "cpu")
LIMITS = {"cpu_s": 0.15}


def attack(scene: Scene) -> object:
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    while True:
        pass
