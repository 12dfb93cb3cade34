"""Threads with stacks of a gigabyte.

Source: P13
"""

import threading
import time

from tests.escape.kit import Ends, Scene, tried

EXPECT = ("RuntimeError", "ValueError", Ends("limit_exceeded", "processes"), Ends("limit_exceeded", "memory"))


def attack(scene: Scene) -> object:
    threading.stack_size(1 << 30)

    def start() -> None:
        for _ in range(4):
            threading.Thread(target=time.sleep, args=(1000,)).start()

    return tried(start)
