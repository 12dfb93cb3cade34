"""Open files by inode.

Source: V17; "shocker"
"""

from tests.escape.kit import Scene, all_of, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return all_of(
        name=asked("name_to_handle_at", -100, "/", None, None, 0), open=asked("open_by_handle_at", 3, None, 0)
    )
