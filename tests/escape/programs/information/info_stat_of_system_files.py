"""Probe for files of the host that were not bound, beside ones that were.

Source: I15
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "ok"}


def attack(scene: Scene) -> object:
    found = {path: tried(os.stat, path) for path in ("/etc/shadow", "/var/log", "/root/.ssh")}
    return "ok" if "ok" in found.values() else all_of(**found)
