"""Go to the host's root by /proc/self/root and /proc/1/root.

Source: F11; sandlock chroot_proc_self_root
"""

from tests.escape.kit import NO_NAMESPACES, Scene, read, tried

EXPECT = ["ENOENT", ("ENOENT", "EACCES")]
VARIES = {NO_NAMESPACES: ["EACCES", "EACCES"]}


def attack(scene: Scene) -> object:
    return [tried(read, f"/proc/self/root{scene.secret}"), tried(read, f"/proc/1/root{scene.secret}")]
