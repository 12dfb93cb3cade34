"""The environment of the supervisor and the canary, which holds a secret.

Source: I03
"""

from tests.escape.kit import NO_NAMESPACES, Scene, each, read, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    return each(lambda pid: tried(read, f"/proc/{pid}/environ"), [scene.supervisor, scene.canary])
