"""Nest Landlock layers until there are no more: each only takes away, and the last is an error.

Source: V19
"""

import ctypes
import os
import struct

from tests.escape.kit import NO_LANDLOCK, Scene, asked, named

from toolcell_sandbox.kernel.syscalls import attempt

EXPECT = "E2BIG"
VARIES = {NO_LANDLOCK: "ENOSYS"}


def attack(scene: Scene) -> object:
    attr = ctypes.create_string_buffer(struct.pack("QQQ", 1 << 2, 0, 0))
    for _ in range(20):
        ruleset = attempt("landlock_create_ruleset", attr, 24, 0)
        if ruleset < 0:
            return named(-ruleset)
        answer = asked("landlock_restrict_self", ruleset, 0)
        os.close(ruleset)
        if answer != "ok":
            return answer
    return "twenty"
