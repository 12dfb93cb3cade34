"""Call oneself what stands before a figure in /proc/PID/status, which the supervisor reads.

Source: prctl(2), PR_SET_NAME; proc_pid_status(5)
"""

import ctypes

from tests.escape.kit import Scene

EXPECT = "named"


def attack(scene: Scene) -> object:
    ctypes.CDLL(None).prctl(15, b"VmHWM:zz", 0, 0, 0)
    return "named"
