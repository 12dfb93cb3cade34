"""Read a file of the host through a path of many "..".

Source: F01; srt "symlink-based escape"
"""

from tests.escape.kit import NO_NAMESPACES, Scene, read, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    return tried(read, "../../../../../../../../../../etc/shadow")
