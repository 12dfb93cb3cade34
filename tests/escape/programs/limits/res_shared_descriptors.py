"""A process that shares the descriptors of another (CLONE_FILES) could leave POSIX locks under a dead number.

Source: own
"""

import os
import signal

from tests.escape.kit import Scene, named

from toolcell_sandbox.kernel.syscalls import attempt

CLONE_FILES = 0x400
EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    child = attempt("clone", CLONE_FILES | signal.SIGCHLD, None, None, None, 0)
    if child == 0:
        os._exit(0)
    return "ok" if child > 0 else named(-child)
