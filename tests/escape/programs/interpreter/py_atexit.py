"""Exit hooks that sleep, and threads that stay.

Source: Y09
"""

import atexit
import threading
import time

from tests.escape.kit import Scene

EXPECT = "returned"


def attack(scene: Scene) -> object:
    atexit.register(time.sleep, 1000)
    threading.Thread(target=time.sleep, args=(1000,)).start()
    return "returned"
