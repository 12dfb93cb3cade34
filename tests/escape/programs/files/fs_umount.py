"""Unmount what hides the host.

Source: F15
"""

from tests.escape.kit import Scene, asked, each

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return each(lambda path: asked("umount2", path, 2), ["/", "/tmp", "/usr", "/proc", scene.workspace])
