"""Ignore and block every signal, and stay.

Source: P15
"""

import signal
import time

from tests.escape.kit import Ends, Scene

EXPECT = Ends("timeout")
TIMEOUT = 1.0  # it sleeps


def attack(scene: Scene) -> object:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        time.sleep(1)
