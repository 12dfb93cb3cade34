"""More files in the scratch than it may hold, with nothing in them.

Source: R07; go-judge nr_inodes
"""

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = "ENOSPC"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    def fill() -> None:
        for number in range(2000):
            open(f"/tmp/{number}", "w").close()

    return tried(fill)
