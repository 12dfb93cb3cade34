"""userfaultfd, which wins races in the kernel.

Source: own
"""

from tests.escape.kit import Scene, asked, each

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return each(lambda flags: asked("userfaultfd", flags), [0, 1])
