"""Enter the namespaces of others.

Source: V05
"""

import os

from tests.escape.kit import Scene, all_of, asked

from toolcell_sandbox.kernel.syscalls import attempt

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    own = attempt("pidfd_open", os.getpid(), 0)
    return all_of(pidfd=asked("setns", own, 0x20000), fd=asked("setns", 0, 0))
