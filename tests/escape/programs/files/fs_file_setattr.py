"""Change file system attributes by the system calls of Linux 6.17.

Source: F21
"""

from tests.escape.kit import Scene, all_of, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return all_of(set=asked("file_setattr", -100, "/usr", None, 0, 0), quota=asked("quotactl_fd", 0, 0, 0, None))
