"""Mount a file system, old API.

Source: F14
"""

from tests.escape.kit import Scene, asked, each

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return each(
        lambda kind: asked("mount", "none", "/tmp", kind, 0, None),
        ["tmpfs", "proc", "sysfs", "overlay", "ext4", "cgroup2", "devpts"],
    )
