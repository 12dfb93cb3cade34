"""Touch memory over and over, to have it swapped.

Source: R27; snekbox
"""

from tests.escape.kit import Ends, Scene

EXPECT = Ends("limit_exceeded", "memory")


def attack(scene: Scene) -> object:
    held = [bytearray(1 << 20) for _ in range(60)]
    while True:
        held.append(bytearray(b"x") * (1 << 20))
