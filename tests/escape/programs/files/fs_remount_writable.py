"""Remount what is read-only, and move and bind mounts.

Source: F14
"""

from tests.escape.kit import Scene, all_of, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return all_of(
        remount=asked("mount", None, "/usr", None, 32, None),
        bind=asked("mount", "/tmp", "/usr", None, 4096, None),
        move=asked("mount", "/usr", "/tmp", None, 8192, None),
        shared=asked("mount", None, "/", None, 1 << 20, None),
    )
