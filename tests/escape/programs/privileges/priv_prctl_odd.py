"""Odd options of prctl: a new memory map, a timer slack of others, a syscall trap.

Source: own
"""

from tests.escape.kit import Scene, asked

EXPECT = ("EPERM", "EINVAL", "EFAULT", "EACCES", "ok")


def attack(scene: Scene) -> object:
    found = {asked("prctl", 35, 14, None, 0, 0), asked("prctl", 0x59616D61, 1, 0, 0, 0)}
    return "EPERM" if "ok" not in found else sorted(found)
