"""Higher priority, real time, and I/O priority.

Source: P23
"""

import ctypes
import os
import struct

from tests.escape.kit import Scene, asked, tried

EXPECT = [("EACCES", "EPERM"), "EPERM", "EPERM", "EPERM"]


def attack(scene: Scene) -> object:
    parameter = ctypes.create_string_buffer(struct.pack("i", 50))
    return [
        tried(os.setpriority, os.PRIO_PROCESS, 0, -20),
        asked("sched_setscheduler", 0, 1, parameter),
        asked(
            "sched_setattr",
            0,
            ctypes.create_string_buffer(struct.pack("IIQiIQQQ", 48, 6, 0, 0, 0, 10**6, 10**7, 10**7)),
            0,
        ),
        asked("ioprio_set", 1, 0, 1 << 13),
    ]
