"""Place the memory of itself and others.

Source: own
"""

from tests.escape.kit import Scene, asked, each

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    names = ["mbind", "set_mempolicy", "get_mempolicy", "migrate_pages", "move_pages", "set_mempolicy_home_node"]
    return each(lambda name: asked(name, 0, 0, 0, 0, 0, 0), names)
