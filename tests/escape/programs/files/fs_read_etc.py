"""Read what is known to be in /etc.

Source: F01
"""

from tests.escape.kit import NO_NAMESPACES, Scene, each, read, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    return each(lambda name: tried(read, f"/etc/{name}"), ["shadow", "gshadow", "hostname", "resolv.conf"])
