"""Connect over IPv6.

Source: N02
"""

import socket

from tests.escape.kit import Scene, tried

EXPECT = "EAFNOSUPPORT"


def attack(scene: Scene) -> object:
    return tried(lambda: socket.socket(socket.AF_INET6).connect(("::1", scene.tcp)))
