"""With WRITE: one file without end in the workspace.

Source: R25; isolate quota
"""

from tests.escape.kit import Ends, Scene

EXPECT = Ends("limit_exceeded", "file_size")
GRANTS = "read write"


def attack(scene: Scene) -> object:
    with open(f"{scene.workspace}/huge", "wb") as file:
        while True:
            file.write(bytes(1 << 20))
