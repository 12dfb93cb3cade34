"""Resolve a name.

Source: N03
"""

import socket

from tests.escape.kit import Scene, tried

EXPECT = ("gaierror", "EAI_AGAIN", "ENOENT", "EAGAIN", "errno -3", "errno -2")


def attack(scene: Scene) -> object:
    return tried(socket.getaddrinfo, "secret.example.com", 80)
