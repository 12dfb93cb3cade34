"""Climb from the magic links of /proc/self.

Source: F11
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, each, read, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    ups = "/.." * 12
    return each(
        lambda link: tried(read, f"/proc/self/{link}{ups}{scene.secret}"), ["cwd", "root", f"task/{os.getpid()}/cwd"]
    )
