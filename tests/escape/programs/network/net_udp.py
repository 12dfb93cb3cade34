"""Send a datagram, which Landlock before ABI 10 lets out.

Source: N03; srt, DNS with empty allowedDomains
"""

import socket

from tests.escape.kit import Scene, tried

EXPECT = "EAFNOSUPPORT"


def attack(scene: Scene) -> object:
    return tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", scene.udp)))
