"""The accounts of the host, of which a cell has none.

Source: I19
"""

import pwd

from tests.escape.kit import NO_NAMESPACES, Scene

EXPECT = ["nobody", "root", "toolcell"]
VARIES: dict[str, list[str]] = {NO_NAMESPACES: []}


def attack(scene: Scene) -> object:
    return sorted(account.pw_name for account in pwd.getpwall())
