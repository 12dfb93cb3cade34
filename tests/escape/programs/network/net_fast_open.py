"""Connect by sending, past a rule about ports: MSG_FASTOPEN in sendto, sendmsg and sendmmsg.

Source: own; a pair takes the flag and ignores it
"""

import ctypes
import socket

from tests.escape.kit import Scene, all_of, asked

EXPECT = "ENOTSUP"  # the same number as EOPNOTSUPP
FAST_OPEN = 0x20000000


def attack(scene: Scene) -> object:
    ours, _theirs = socket.socketpair()
    headers = ctypes.create_string_buffer(2 * 64)  # no name, no data
    return all_of(
        sendto=asked("sendto", ours.fileno(), b"x", 1, FAST_OPEN, None, 0),
        sendmsg=asked("sendmsg", ours.fileno(), headers, FAST_OPEN),
        sendmmsg=asked("sendmmsg", ours.fileno(), headers, 1, FAST_OPEN),
        high=asked("sendto", ours.fileno(), b"x", 1, 0x1_0000_0000 | FAST_OPEN, None, 0),
    )
