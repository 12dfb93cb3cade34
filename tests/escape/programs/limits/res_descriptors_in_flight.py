"""Park descriptors in socket pairs, beyond the limit of open ones.

Source: R29; CVE-2013-4312
"""

import socket

from tests.escape.kit import Scene, tried

EXPECT = ("EMFILE", "ETOOMANYREFS", "EAGAIN")


def attack(scene: Scene) -> object:
    ours, _theirs = socket.socketpair()
    ours.setblocking(False)

    def park() -> None:
        for _ in range(5000):
            socket.send_fds(ours, [b"x"], [0] * 32)

    return tried(park)
