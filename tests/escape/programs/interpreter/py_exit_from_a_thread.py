"""os._exit from another thread.

Source: Y01
"""

import os
import threading
import time

from tests.escape.kit import Ends, Scene

EXPECT = Ends("crashed", 9)


def attack(scene: Scene) -> object:
    threading.Thread(target=os._exit, args=(9,)).start()
    time.sleep(100)
    return "went on"
