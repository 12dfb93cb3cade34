"""Raw and packet sockets.

Source: N04
"""

import socket

from tests.escape.kit import Scene, all_of, tried

EXPECT = "EAFNOSUPPORT"


def attack(scene: Scene) -> object:
    return all_of(
        icmp=tried(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1),
        ping=tried(socket.socket, socket.AF_INET, socket.SOCK_DGRAM, 1),
        packet=tried(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 3),
    )
