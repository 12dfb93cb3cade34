"""With WRITE: plant files that something executes later.

Source: F35; claude-code #25603
"""

import os

from tests.escape.kit import Ends, Scene, write

EXPECT = Ends("permission_denied", "protected names were made or changed")
GRANTS = "read write"


def attack(scene: Scene) -> object:
    for path in (
        ".mcp.json",
        ".vscode/tasks.json",
        "sitecustomize.py",
        "x.pth",
        "dir/conftest.py",
        ".github/workflows/ci.yml",
    ):
        os.makedirs(os.path.dirname(f"{scene.workspace}/{path}"), exist_ok=True)
        write(f"{scene.workspace}/{path}")
    return "planted"
