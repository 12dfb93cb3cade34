"""Allocate in small pieces and swallow MemoryError. Without a cgroup nothing is exceeded: the kernel refuses the rest.

Source: R01
"""

from tests.escape.kit import NO_CGROUP, NO_NAMESPACES, ROOTLESS, Ends, Scene

EXPECT = Ends("limit_exceeded", "memory")
VARIES = dict.fromkeys((ROOTLESS, NO_CGROUP, NO_NAMESPACES), (Ends("limit_exceeded", "memory"), Ends("timeout")))
TIMEOUT = 1.5


def attack(scene: Scene) -> object:
    held = []
    while True:
        try:
            held.append(bytearray(1 << 20))
        except MemoryError:
            continue
