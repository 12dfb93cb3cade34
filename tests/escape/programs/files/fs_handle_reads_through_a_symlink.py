"""Have the read handle follow a symbolic link out of the workspace.

Source: F05
"""

from tests.escape.kit import Scene, each, tried

EXPECT = "ToolFailure"


def attack(scene: Scene) -> object:
    return each(
        lambda path: tried(scene.ctx.workspace.read_bytes, path),
        ["to_secret", "to_outside/list.txt", "../outside/list.txt"],
    )
