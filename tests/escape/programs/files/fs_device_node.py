"""Make device nodes, as tar does when it extracts one.

Source: F19; nsjail and go-sandbox mounts
"""

import os
import stat

from tests.escape.kit import NO_LANDLOCK, Scene, each, tried

EXPECT = "EACCES"
VARIES = {NO_LANDLOCK: "EPERM"}
GRANTS = "read write"


def attack(scene: Scene) -> object:
    kinds = {"memory": (stat.S_IFCHR, 1, 1), "disk": (stat.S_IFBLK, 253, 0), "kmsg": (stat.S_IFCHR, 1, 11)}
    return each(
        lambda kind: tried(os.mknod, f"{scene.workspace}/{kind}", kinds[kind][0] | 0o666, os.makedev(*kinds[kind][1:])),
        kinds,
    )
