"""Make sockets by io_uring, past every filter.

Source: N17; the gap of srt
"""

import ctypes

from tests.escape.kit import Scene, all_of, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    parameters = ctypes.create_string_buffer(120)
    return all_of(
        setup=asked("io_uring_setup", 8, parameters),
        enter=asked("io_uring_enter", 0, 0, 0, 0, None, 0),
        register=asked("io_uring_register", 0, 0, None, 0),
    )
