"""Addresses of the kernel, by performance counters and bpf.

Source: I18
"""

from tests.escape.kit import Scene, all_of, asked

from toolcell_sandbox.kernel.syscalls import NUMBERS

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return all_of(
        perf=asked("perf_event_open", None, 0, -1, -1, 0),
        bpf=asked("bpf", 0, None, 0),
        dcookie=asked("lookup_dcookie", 0, None, 0) if "lookup_dcookie" in NUMBERS else "EPERM",
    )
