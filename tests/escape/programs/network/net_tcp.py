"""Connect to a port on which the host listens.

Source: N01; Codex blocks_curl and blocks_nc
"""

import socket

from tests.escape.kit import Scene, tried

EXPECT = "EAFNOSUPPORT"


def attack(scene: Scene) -> object:
    return tried(socket.create_connection, ("127.0.0.1", scene.tcp), 0.5)
