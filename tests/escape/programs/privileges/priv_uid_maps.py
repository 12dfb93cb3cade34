"""Write id maps, as in a user namespace of its own.

Source: own
"""

from tests.escape.kit import Scene, tried, write

EXPECT = ("EACCES", "EPERM")


def attack(scene: Scene) -> object:
    found = {tried(write, f"/proc/self/{name}") for name in ("uid_map", "gid_map", "setgroups")}
    return "EACCES" if found <= {"EACCES", "EPERM"} else sorted(found)
