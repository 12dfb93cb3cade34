"""Trace the supervisor and the canary.

Source: P07
"""

from tests.escape.kit import Scene, asked, each

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return each(lambda pid: asked("ptrace", 16, pid, None, None), [scene.supervisor, scene.canary, scene.bystander])
