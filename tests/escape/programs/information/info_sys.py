"""/sys is not there.

Source: I07
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, each, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    return each(lambda path: tried(os.listdir, path), ["/sys", "/sys/class/net", "/sys/kernel", "/sys/fs/cgroup"])
