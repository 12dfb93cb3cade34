"""List the interfaces and addresses by other ways.

Source: N09
"""

import os
import socket

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = "refused"
VARIES = {NO_NAMESPACES: "seen"}


def attack(scene: Scene) -> object:
    return (
        "refused"
        if tried(socket.if_nameindex) != "ok"
        and not os.path.exists("/sys/class/net")
        and not os.path.exists("/proc/net/dev")
        else "seen"
    )
