"""Dump interfaces, routes and sockets over netlink.

Source: N09
"""

import socket

from tests.escape.kit import Scene, each, tried

EXPECT = "EAFNOSUPPORT"


def attack(scene: Scene) -> object:
    return each(lambda protocol: tried(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, protocol), [0, 4, 9, 15, 16])
