"""Open the namespaces of the init and of the host.

Source: V05
"""

import os

from tests.escape.kit import Scene, tried

EXPECT = ("EACCES", "ENOENT")


def attack(scene: Scene) -> object:
    found = {
        tried(os.open, f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        for pid in (1, scene.supervisor)
        for name in ("mnt", "net", "user")
    }
    return "EACCES" if found <= {"EACCES", "ENOENT"} else sorted(found)
