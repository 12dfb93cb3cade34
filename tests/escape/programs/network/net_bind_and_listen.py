"""Open a door to the cell.

Source: own
"""

import socket

from tests.escape.kit import Scene, tried

EXPECT = "EAFNOSUPPORT"


def attack(scene: Scene) -> object:
    return tried(socket.create_server, ("127.0.0.1", 0))
