"""Lock memory.

Source: P23
"""

import ctypes

from tests.escape.kit import ROOTLESS, Scene, all_of, asked

EXPECT = "EPERM"
VARIES = {ROOTLESS: ("EPERM", "ENOMEM")}


def attack(scene: Scene) -> object:
    page = ctypes.create_string_buffer(4096)
    return all_of(
        all=asked("mlockall", 3),
        page=asked("mlock", ctypes.addressof(page), 4096),
        two=asked("mlock2", ctypes.addressof(page), 4096, 1),
    )
