"""A bomb of clone calls of the raw kind, of threads and of processes.

Source: P12
"""

from tests.escape.kit import NO_NAMESPACES, Ends, Scene

from toolcell_sandbox.kernel.syscalls import attempt

EXPECT = Ends("limit_exceeded", "processes")
VARIES = {NO_NAMESPACES: (Ends("limit_exceeded", "processes"), Ends("limit_exceeded", "memory"), Ends("timeout"))}


def attack(scene: Scene) -> object:
    while True:
        attempt("clone", 17, None, None, None, 0)
