"""A thread execs, with EXEC, in place of the call.

Source: own
"""

import os
import threading
import time

from tests.escape.kit import Ends, Scene

EXPECT = Ends("crashed", 7)
GRANTS = "read exec"


def attack(scene: Scene) -> object:
    threading.Thread(target=os.execv, args=("/bin/sh", ["/bin/sh", "-c", "exit 7"])).start()
    time.sleep(100)
    return "went on"
