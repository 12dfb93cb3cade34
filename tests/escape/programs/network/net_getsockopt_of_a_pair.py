"""Use the kernel's socket pairs for what they must not do: a listener, a peer's credentials, an attached filter.

Source: own
"""

import socket

from tests.escape.kit import Scene, all_of, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    ours, _theirs = socket.socketpair()
    return all_of(
        bind=asked("bind", ours.fileno(), b"\1\0", 2),
        listen=asked("listen", ours.fileno(), 1),
        connect=asked("connect", ours.fileno(), b"\1\0x", 3),
    )
