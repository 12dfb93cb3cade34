"""Connect a socket that a socketpair gave to an abstract socket of the host.

Source: N07
"""

import socket

from tests.escape.kit import Scene, all_of, tried

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    ours, _theirs = socket.socketpair()
    return all_of(
        connect=tried(ours.connect, "\0" + scene.abstract), bind=tried(ours.bind, "\0mine"), listen=tried(ours.listen)
    )
