"""Change to another user, to root above all.

Source: V03
"""

import os

from tests.escape.kit import NO_LANDLOCK, ROOTLESS, Scene, tried

EXPECT = "EPERM"
VARIES = dict.fromkeys((ROOTLESS, NO_LANDLOCK), ("EPERM", "EINVAL"))


def attack(scene: Scene) -> object:
    found = {
        tried(os.setuid, 0),
        tried(os.setgid, 0),
        tried(os.setresuid, 0, 0, 0),
        tried(os.setreuid, 0, 0),
        tried(os.seteuid, 0),
        tried(os.setgroups, [0]),
        tried(os.setgroups, []),
        tried(os.initgroups, "root", 0),
    }
    return found.pop() if len(found) == 1 else "EINVAL" if found == {"EPERM", "EINVAL"} else sorted(found)
