"""Become dumpable and open the init's and its own files in /proc.

Source: own
"""

import os

from tests.escape.kit import Scene, each, tried

from toolcell_sandbox.kernel.syscalls import attempt

EXPECT = ("ENOENT", "EACCES")


def attack(scene: Scene) -> object:
    attempt("prctl", 4, 1, 0, 0, 0)
    return each(lambda name: tried(open, f"/proc/{os.getppid()}/{name}", "rb"), ["mem", "environ", "maps", "auxv"])
