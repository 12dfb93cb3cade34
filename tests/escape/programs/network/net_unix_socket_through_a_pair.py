"""Connect a socket of a pair to a socket file, and send to one by its path.

Source: N08
"""

import socket

from tests.escape.kit import Scene, tried

EXPECT = "EPERM"
GRANTS = "read write"


def attack(scene: Scene) -> object:
    ours, _theirs = socket.socketpair()
    return tried(ours.connect, f"{scene.workspace}/listen.sock")
