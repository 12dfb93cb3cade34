"""Attributes of security modules.

Source: own
"""

from tests.escape.kit import Scene, all_of, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return all_of(get=asked("lsm_get_self_attr", 100, None, None, 0), list=asked("lsm_list_modules", None, None, 0))
