"""Have the write handle follow a symbolic link out of the workspace.

Source: F05; go-judge CheckPathPrefixes_SymlinkEscape
"""

from tests.escape.kit import Scene, each, tried

EXPECT = "ToolFailure"
GRANTS = "read write"


def attack(scene: Scene) -> object:
    return each(
        lambda path: tried(scene.ctx.writer.write_text, path, "x"), ["to_outside/new", "to_secret", "to_outside/dir/n"]
    )
