"""The host's name and domain.

Source: I09; sandbox2 HostnameDefault
"""

import ctypes
import socket

from tests.escape.kit import NO_NAMESPACES, Scene

EXPECT = ["toolcell", "(none)"]
VARIES = {NO_NAMESPACES: "the host's"}


def attack(scene: Scene) -> object:
    libc = ctypes.CDLL(None)
    domain = ctypes.create_string_buffer(256)
    libc.getdomainname(domain, 256)
    found = [socket.gethostname(), domain.value.decode()]
    return found if found[0] == "toolcell" else "the host's"
