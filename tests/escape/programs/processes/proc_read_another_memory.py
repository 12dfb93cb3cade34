"""process_vm_readv and its kin on the init and the host.

Source: P09; Codex seccomp
"""

import os

from tests.escape.kit import Scene, all_of, asked, each

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return each(
        lambda pid: all_of(
            read=asked("process_vm_readv", pid, None, 0, None, 0, 0),
            write=asked("process_vm_writev", pid, None, 0, None, 0, 0),
            kcmp=asked("kcmp", os.getpid(), pid, 0, 0, 0),
        ),
        [1, scene.supervisor, scene.canary],
    )
