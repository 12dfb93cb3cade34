"""Turn off PR_SET_PDEATHSIG, which is allowed, and leave a process.

Source: P17
"""

import os

from tests.escape.kit import Scene, linger

from toolcell_sandbox.kernel.syscalls import attempt

EXPECT = 0


def attack(scene: Scene) -> object:
    answer = attempt("prctl", 1, 0, 0, 0, 0)
    if os.fork() == 0:
        linger(scene)
    return answer
