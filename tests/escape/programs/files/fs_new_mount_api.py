"""Mount with the system calls that old filters did not know.

Source: F15; CVE-2021-41133
"""

from tests.escape.kit import Scene, all_of, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return all_of(
        fsopen=asked("fsopen", "tmpfs", 0),
        fspick=asked("fspick", -100, "/", 0),
        fsconfig=asked("fsconfig", 0, 0, None, None, 0),
        fsmount=asked("fsmount", 0, 0, 0),
        open_tree=asked("open_tree", -100, "/", 1),
        move_mount=asked("move_mount", -100, "/usr", -100, "/tmp", 0),
        mount_setattr=asked("mount_setattr", -100, "/", 0, None, 0),
        open_tree_attr=asked("open_tree_attr", -100, "/", 0, None, 0),
    )
