"""With WRITE: follow a link of the workspace to a file of the host.

Source: F04
"""

from tests.escape.kit import NO_NAMESPACES, Scene, tried, write

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}
GRANTS = "read write"


def attack(scene: Scene) -> object:
    return tried(write, f"{scene.workspace}/to_secret")
