"""Connect to a socket file that lies in the workspace.

Source: N08
"""

import socket

from tests.escape.kit import Scene, tried

EXPECT = "EAFNOSUPPORT"
GRANTS = "read write"


def attack(scene: Scene) -> object:
    return tried(lambda: socket.socket(socket.AF_UNIX).connect(f"{scene.workspace}/listen.sock"))
