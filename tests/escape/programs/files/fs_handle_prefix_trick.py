"""Have the handles reach a directory whose name begins like the workspace's.

Source: F07
"""

import os

from tests.escape.kit import Scene, each, tried

EXPECT = "ToolFailure"


def attack(scene: Scene) -> object:
    name = os.path.basename(scene.workspace) + "x"
    return each(
        lambda path: tried(scene.ctx.workspace.read_bytes, path),
        [f"../{name}/secret.txt", scene.workspace + "x/secret.txt"],
    )
