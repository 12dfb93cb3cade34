"""Look for the sockets of services that give the host away.

Source: N08
"""

import socket

from tests.escape.kit import Scene, each, tried

EXPECT = "EAFNOSUPPORT"


def attack(scene: Scene) -> object:
    paths = [
        "/var/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/run/dbus/system_bus_socket",
        "/run/systemd/private",
    ]
    return each(lambda path: tried(lambda: socket.socket(socket.AF_UNIX).connect(path)), paths)
