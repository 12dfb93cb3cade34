"""Become dumpable: refused, and worth little, for no one may trace or read it anyway.

Source: own
"""

import os

from tests.escape.kit import Scene, asked

EXPECT = ["EPERM", "EPERM"]


def attack(scene: Scene) -> object:
    made = asked("prctl", 4, 1, 0, 0, 0)
    return [made, asked("ptrace", 16, os.getppid(), None, None)]
