"""Make files in /, /usr, /dev, /etc and the interpreter's own tree.

Source: F23; snekbox test_read_only_file_system
"""

import sys

from tests.escape.kit import NO_NAMESPACES, Scene, each, tried, write

EXPECT = "EROFS"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    return each(
        lambda place: tried(write, f"{place}/hostile"), ["", "/usr", "/usr/bin", "/dev", "/etc", sys.prefix, "/lib"]
    )
