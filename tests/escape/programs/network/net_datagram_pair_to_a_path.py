"""Send from a datagram pair to a socket file.

Source: N08
"""

import socket

from tests.escape.kit import Scene, tried

EXPECT = "EAFNOSUPPORT"


def attack(scene: Scene) -> object:
    return tried(
        lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", f"{scene.outside}/app.dgram")
    )
