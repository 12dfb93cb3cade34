"""Allocate in small pieces and swallow MemoryError. Without a cgroup nothing is exceeded: the kernel refuses the rest.

Source: R01
"""

import time

from tests.escape.kit import NO_CGROUP, NO_NAMESPACES, ROOTLESS, Ends, Scene

EXPECT = Ends("limit_exceeded", "memory")
VARIES = dict.fromkeys((ROOTLESS, NO_CGROUP, NO_NAMESPACES), (Ends("limit_exceeded", "memory"), "went on"))


def attack(scene: Scene) -> object:
    held = []
    until = time.process_time() + 0.25
    while time.process_time() < until:
        try:
            held.append(bytearray(1 << 20))
        except MemoryError:
            continue
    held.clear()
    return "went on"
