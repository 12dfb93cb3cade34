"""pidfd_getfd on whatever can be opened.

Source: P09
"""

import os

from tests.escape.kit import Scene, all_of, asked

from toolcell_sandbox.kernel.syscalls import attempt

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    own = attempt("pidfd_open", os.getpid(), 0)
    return all_of(
        own=asked("pidfd_getfd", own, 0, 0),
        madvise=asked("process_madvise", own, None, 0, 8, 0),
        reap=asked("process_mrelease", own, 0),
    )
