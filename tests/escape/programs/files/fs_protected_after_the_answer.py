"""With WRITE: a child plants a file after the call has answered, and another is left in a background thread.

Source: F35; Y07
"""

import os
import threading
import time

from tests.escape.kit import Scene, tried, write

EXPECT = "answered"
GRANTS = "read write"


def attack(scene: Scene) -> object:
    def plant() -> None:
        time.sleep(0.2)
        while True:
            tried(write, f"{scene.workspace}/.envrc")

    if os.fork() == 0:
        plant()
    threading.Thread(target=plant, daemon=True).start()
    return "answered"
