"""Trace its init, its own child, and be traced.

Source: P07; sandbox2 PtraceDisallowed
"""

import os
import time

from tests.escape.kit import Scene, all_of, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    child = os.fork()
    if child == 0:
        time.sleep(100)
    return all_of(
        attach=asked("ptrace", 16, 1, None, None),
        seize=asked("ptrace", 0x4206, os.getppid(), None, None),
        child=asked("ptrace", 16, child, None, None),
        traceme=asked("ptrace", 0, 0, None, None),
    )
