"""Have a descriptor of a socket passed in: no peer can be found to pass it.

Source: N16
"""

import socket

from tests.escape.kit import Scene, tried

EXPECT = ("EINVAL", "EOPNOTSUPP")


def attack(scene: Scene) -> object:
    ours, theirs = socket.socketpair()
    return tried(ours.accept) if tried(theirs.connect, "\0x") == "EPERM" else "connected"
