"""Have the kernel run a program on the host, by core_pattern, modprobe and uevent_helper.

Source: own
"""

from tests.escape.kit import Scene, tried, write

EXPECT = "refused"


def attack(scene: Scene) -> object:
    names = ["core_pattern", "modprobe", "hotplug", "usermodehelper/bset"]
    found = {name: tried(write, f"/proc/sys/kernel/{name}") for name in names}
    return "refused" if set(found.values()) <= {"ENOENT", "EACCES"} else found
