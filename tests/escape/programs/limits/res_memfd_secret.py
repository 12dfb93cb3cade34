"""Locked and secret memory.

Source: R31
"""

from tests.escape.kit import Scene, all_of, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return all_of(secret=asked("memfd_secret", 0), lock=asked("mlockall", 1))
