"""Connect to the abstract socket of a service of the host.

Source: N07; nono af_unix_abstract
"""

import socket

from tests.escape.kit import Scene, tried

EXPECT = "EAFNOSUPPORT"


def attack(scene: Scene) -> object:
    return tried(lambda: socket.socket(socket.AF_UNIX).connect("\0" + scene.abstract))
