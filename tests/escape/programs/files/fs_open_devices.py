"""Open devices that no cell has.

Source: F19
"""

import os

from tests.escape.kit import NO_NAMESPACES, ROOT, Scene, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: ("EACCES", "ENOENT"), ROOT: "ENOENT"}


def attack(scene: Scene) -> object:
    names = [
        "mem",
        "kmsg",
        "tty",
        "ptmx",
        "vda",
        "fuse",
        "kvm",
        "net/tun",
        "mapper/control",
        "loop-control",
        "input/event0",
    ]
    found = {tried(os.open, f"/dev/{name}", os.O_RDWR) for name in names}
    return found.pop() if len(found) == 1 else "EACCES" if found == {"EACCES", "ENOENT"} else sorted(found)
