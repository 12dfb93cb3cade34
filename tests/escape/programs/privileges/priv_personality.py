"""Turn off address randomisation; reading the personality is fine.

Source: own
"""

from tests.escape.kit import Scene, asked

EXPECT = ["EPERM", "EPERM", "ok"]


def attack(scene: Scene) -> object:
    return [asked("personality", 0x40000), asked("personality", 0x1_0004_0000), asked("personality", 0xFFFFFFFF)]
