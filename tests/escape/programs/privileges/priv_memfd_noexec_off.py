"""Allow executable memfds again.

Source: own
"""

from tests.escape.kit import NO_NAMESPACES, Scene, tried, write

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    return tried(write, "/proc/sys/vm/memfd_noexec")
