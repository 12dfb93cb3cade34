"""Take every signal for itself.

Source: Y17
"""

import signal

from tests.escape.kit import Scene, tried

EXPECT = "taken"


def attack(scene: Scene) -> object:
    for number in signal.valid_signals():
        tried(signal.signal, number, signal.SIG_IGN)
    return "taken"
