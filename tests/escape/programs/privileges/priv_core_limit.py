"""Have the host's crash handler start: a core limit of 0 and a dumpable process. At 1 a piped core_pattern starts none.

Source: own; systemd-coredump and apport are such handlers, run by root
"""

import ctypes
import resource

from tests.escape.kit import Scene, all_of, asked

EXPECT = ["EINVAL", "EPERM", ([1, 1], [0, 0]), "ok"]  # 0 where its maker has no more to give
RLIMIT_CORE, PR_SET_DUMPABLE = 4, 4
MAP_FIXED_NOREPLACE, PRIVATE, READ_WRITE = 0x100000, 0x22, 3


def attack(scene: Scene) -> object:
    zero = ctypes.create_string_buffer(16)
    even, low = 0x5_0000_0000, 0x7000_0000  # one word is 0, as both of a null pointer are
    for address in (even, low):
        asked("mmap", address, 4096, READ_WRITE, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0)
    return [
        all_of(
            setrlimit=asked("setrlimit", RLIMIT_CORE, zero),
            prlimit=asked("prlimit64", 0, RLIMIT_CORE, zero, None),
            even=asked("prlimit64", 0, RLIMIT_CORE, even, None),
            low=asked("prlimit64", 0, RLIMIT_CORE, low, None),
            high=asked("prlimit64", 0, 0x1_0000_0000 | RLIMIT_CORE, zero, None),
        ),
        all_of(
            plain=asked("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0),
            high=asked("prctl", 0x1_0000_0000 | PR_SET_DUMPABLE, 1, 0, 0, 0),
        ),
        list(resource.getrlimit(resource.RLIMIT_CORE)),
        asked("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0),
    ]
