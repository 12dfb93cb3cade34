"""Thousands of POSIX timers, which pend as signals.

Source: R36
"""

import ctypes

from tests.escape.kit import Scene, named

from toolcell_sandbox.kernel.syscalls import attempt

EXPECT = "EAGAIN"


def attack(scene: Scene) -> object:
    made = 0
    while made < 5000:
        answer = attempt("timer_create", 1, None, ctypes.create_string_buffer(8))
        if answer < 0:
            return named(-answer)
        made += 1
    return made
