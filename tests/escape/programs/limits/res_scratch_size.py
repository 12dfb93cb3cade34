"""More bytes in the scratch than it may hold.

Source: R05; R07
"""

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = "ENOSPC"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    def fill() -> None:
        for number in range(12):
            with open(f"/tmp/{number}", "wb") as file:
                file.write(bytes(1 << 20))

    return tried(fill)
