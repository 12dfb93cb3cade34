"""Threads without end.

Source: P13
"""

import threading
import time

from tests.escape.kit import Ends, Scene

EXPECT = Ends("limit_exceeded", "processes")


def attack(scene: Scene) -> object:
    while True:
        threading.Thread(target=time.sleep, args=(1000,)).start()
