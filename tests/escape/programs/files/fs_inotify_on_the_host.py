"""With WRITE: watch a directory of the host.

Source: F37
"""

from tests.escape.kit import NO_NAMESPACES, Scene, asked

from toolcell_sandbox.kernel.syscalls import attempt

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "ok"}
GRANTS = "read write"


def attack(scene: Scene) -> object:
    fd = attempt("inotify_init1", 0)
    return asked("inotify_add_watch", fd, scene.outside, 0xFFF)
