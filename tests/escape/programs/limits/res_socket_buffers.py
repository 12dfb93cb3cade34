"""A larger socket buffer is memory that only a control group counts: the request succeeds and changes nothing.

Source: own
"""

import socket

from tests.escape.kit import Scene

EXPECT = [False, False]


def attack(scene: Scene) -> object:
    near, far = socket.socketpair()
    with near, far:
        changed: list[bool] = []
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            before = near.getsockopt(socket.SOL_SOCKET, option)
            near.setsockopt(socket.SOL_SOCKET, option, 8192)
            changed.append(near.getsockopt(socket.SOL_SOCKET, option) != before)
        return changed
