"""Change mode, owner and times of the read-only tree, which Landlock alone does not refuse.

Source: F21; Landlock documentation
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, each, tried

EXPECT = "EROFS"
VARIES = {NO_NAMESPACES: "EPERM"}


def attack(scene: Scene) -> object:
    return each(
        lambda path: all_of(
            mode=tried(os.chmod, path, 0o777),
            owner=tried(os.chown, path, -1, os.getgid()),
            time=tried(os.utime, path, (1, 1)),
        ),
        ["/usr", "/usr/bin/env", "/usr/lib"],
    )
