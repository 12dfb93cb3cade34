"""Have the kernel send SIGIO and SIGKILL to others, to the init, to a group, as owners of a pipe or a socket.

Source: own
"""

import ctypes
import fcntl
import os
import signal
import socket
import struct

from tests.escape.kit import Scene, all_of, asked, tried

F_SETSIG, F_SETOWN_EX, OWNER_IS_A_GROUP = 10, 15, 2
FIOSETOWN, SIOCSPGRP = 0x8901, 0x8902
EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    take, give = os.pipe()
    here, there = socket.socketpair()
    answers: dict[str, object] = {}
    for pid in (1, os.getpid(), -os.getpgrp(), scene.canary, scene.supervisor):
        owner = ctypes.create_string_buffer(struct.pack("ii", OWNER_IS_A_GROUP, abs(pid)))
        number = ctypes.create_string_buffer(struct.pack("i", pid))
        answers[f"pipe of {pid}"] = tried(fcntl.fcntl, take, fcntl.F_SETOWN, pid)
        answers[f"pipe of the group {pid}"] = asked("fcntl", take, F_SETOWN_EX, owner)
        answers[f"signal to {pid}"] = tried(fcntl.fcntl, take, F_SETSIG, signal.SIGKILL)
        answers[f"socket of {pid}"] = asked("ioctl", here.fileno(), FIOSETOWN, number)
        answers[f"socket of the group {pid}"] = asked("ioctl", here.fileno(), SIOCSPGRP, number)
        tried(fcntl.fcntl, take, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        tried(fcntl.fcntl, here, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        os.write(give, b"x")
        there.send(b"x")
    return all_of(**answers)
