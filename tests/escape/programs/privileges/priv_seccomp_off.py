"""Turn seccomp off.

Source: V09
"""

from tests.escape.kit import Scene, asked

from toolcell_sandbox.kernel.syscalls import attempt

EXPECT = [2, "EINVAL"]


def attack(scene: Scene) -> object:
    return [attempt("prctl", 21, 0, 0, 0, 0), asked("prctl", 22, 0, 0, 0, 0)]
