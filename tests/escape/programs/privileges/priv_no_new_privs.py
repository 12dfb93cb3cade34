"""no_new_privs is set and cannot be cleared.

Source: V04
"""

from tests.escape.kit import Scene, asked

from toolcell_sandbox.kernel.syscalls import attempt

EXPECT = [1, "EINVAL"]


def attack(scene: Scene) -> object:
    return [attempt("prctl", 39, 0, 0, 0, 0), asked("prctl", 38, 0, 0, 0, 0)]
