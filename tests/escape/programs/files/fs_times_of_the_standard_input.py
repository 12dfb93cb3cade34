"""Change mode, times and attributes of standard input, which is the host's /dev/null.

Source: own
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, tried

EXPECT = "EROFS"
VARIES = {
    NO_NAMESPACES: {"mode": "EPERM", "owner": "EPERM", "attribute": "EPERM", "past": "EPERM", "now": "ok"},
}


def attack(scene: Scene) -> object:
    return all_of(
        mode=tried(os.fchmod, 0, 0),
        owner=tried(os.fchown, 0, -1, os.getegid()),
        attribute=tried(os.setxattr, 0, "user.x", b"1"),
        past=tried(os.utime, 0, (1, 1)),
        now=tried(os.utime, 0),
    )
