"""Watch whole file systems.

Source: F37
"""

from tests.escape.kit import Scene, all_of, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return all_of(init=asked("fanotify_init", 0, 0), mark=asked("fanotify_mark", 0, 1, 0, -100, "/"))
