"""Watch the programs that the host runs, and the cell's own scratch, without WRITE.

Source: own; a watch tells which of the shared files others open
"""

from tests.escape.kit import Scene, all_of, asked

from toolcell_sandbox.kernel.syscalls import attempt

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    fd = attempt("inotify_init1", 0)
    return all_of(
        programs=asked("inotify_add_watch", fd, "/usr", 0x20),  # IN_OPEN
        workspace=asked("inotify_add_watch", fd, scene.workspace, 0xFFF),
        scratch=asked("inotify_add_watch", fd, "/tmp", 0xFFF),
    )
