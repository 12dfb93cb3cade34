"""With WRITE: plant files that something executes later.

Source: F35; claude-code #25603
"""

import os

from tests.escape.kit import Scene, Told, write

EXPECT = Told("and 3 more")
GRANTS = "read write"


def attack(scene: Scene) -> object:
    for path in (
        ".mcp.json",
        ".vscode/tasks.json",
        "dir/.envrc",
        "dir/.git/hooks/post-checkout",
        "dir/.git/config",
        "dir/.vscode/tasks.json",
        ".github/hooks/session.json",
        ".bashrc",
    ):
        os.makedirs(os.path.dirname(f"{scene.workspace}/{path}"), exist_ok=True)
        write(f"{scene.workspace}/{path}")
    return "planted"
