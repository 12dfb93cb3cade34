"""Asynchronous I/O contexts, which the whole machine shares.

Source: R31
"""

import ctypes

from tests.escape.kit import Scene, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return asked("io_setup", 65536, ctypes.create_string_buffer(8))
