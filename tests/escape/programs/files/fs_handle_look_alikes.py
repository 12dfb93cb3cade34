"""Names that look like ".." or end in dots are plain names in the workspace.

Source: F31
"""

import os

from tests.escape.kit import Scene, tried

EXPECT = "inside"
GRANTS = "read write"


def attack(scene: Scene) -> object:
    for name in ("\u2025", "\uff0e\uff0e", "..\u200b", "...", "name.", "con", "~"):
        tried(scene.ctx.writer.write_text, f"{name}/x", "x")
    return "inside" if not os.path.exists(os.path.join(os.path.dirname(scene.workspace), "x")) else "outside"
