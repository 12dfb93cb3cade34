"""Lower the priority of the cell's init, narrow its processors, and the same for its group and for all of the user.

Source: own
"""

import ctypes
import os
import struct

from tests.escape.kit import Scene, all_of, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    idle = ctypes.create_string_buffer(struct.pack("i", 0))
    attributes = ctypes.create_string_buffer(struct.pack("IIQiIQQQ", 48, 5, 0, 0, 0, 0, 0, 0))
    mask = ctypes.create_string_buffer(struct.pack("Q", 1))
    init = os.getppid()
    user = os.getuid()
    return all_of(
        affinity=asked("sched_setaffinity", init, 8, mask),
        policy=asked("sched_setscheduler", init, 5, idle),
        parameter=asked("sched_setparam", init, idle),
        attributes=asked("sched_setattr", init, attributes, 0),
        nice=asked("setpriority", 0, init, 19),
        nice_of_the_group=asked("setpriority", 1, 0, 19),
        nice_of_the_user=asked("setpriority", 2, user, 19),
        disk=asked("ioprio_set", 1, init, 3 << 13),
        disk_of_the_group=asked("ioprio_set", 2, 0, 3 << 13),
        disk_of_the_user=asked("ioprio_set", 3, user, 3 << 13),
        high_word=asked("setpriority", 0, init | 1 << 32, 19),
    )
