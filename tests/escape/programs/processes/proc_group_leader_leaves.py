"""The main thread ends, another goes on.

Source: P30
"""

import threading
import time

from tests.escape.kit import Ends, Scene

from toolcell_sandbox.kernel.syscalls import attempt

EXPECT = Ends("timeout")
TIMEOUT = 0.5


def attack(scene: Scene) -> object:
    threading.Thread(target=time.sleep, args=(1000,)).start()
    attempt("exit", 0)
    return "went on"
