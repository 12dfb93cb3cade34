"""Change or read the limits of the init and of the host's processes.

Source: P26
"""

import ctypes

from tests.escape.kit import Scene, asked, each

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    old = ctypes.create_string_buffer(16)
    return each(lambda pid: asked("prlimit64", pid, 7, None, old), [1, scene.supervisor, scene.canary, 0x1_0000_0001])
