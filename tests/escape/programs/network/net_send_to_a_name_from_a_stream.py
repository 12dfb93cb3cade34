"""sendto and sendmsg with an address, on a stream pair.

Source: own
"""

import socket

from tests.escape.kit import Scene, all_of, tried

EXPECT = ("EISCONN", "EOPNOTSUPP")


def attack(scene: Scene) -> object:
    ours, _theirs = socket.socketpair()
    return all_of(
        path=tried(ours.sendto, b"x", f"{scene.outside}/app.dgram"),
        abstract=tried(ours.sendto, b"x", "\0" + scene.abstract),
    )
