"""How long the host has run and what it is loaded with: sysinfo tells, which is not promised away.

Source: I20
"""

import ctypes

from tests.escape.kit import Scene, asked

EXPECT = "ok"


def attack(scene: Scene) -> object:
    return asked("sysinfo", ctypes.create_string_buffer(256))
