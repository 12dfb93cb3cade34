"""Leave something in /tmp and /dev/shm for another session; the next call finds neither.

Source: F39; isolate 2.6, podman CVE-2024-3056
"""

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, tried, write

EXPECT = "ok"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    return all_of(tmp=tried(write, "/tmp/for-you"), shm=tried(write, "/dev/shm/for-you"))
