"""Without WRITE: plant files that something executes later, in the workspace and in the home.

Source: F35; claude-code #25603
"""

from tests.escape.kit import NO_NAMESPACES, Scene, each, tried, write

EXPECT = "EROFS"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    names = [
        ".bashrc",
        ".zshrc",
        ".envrc",
        ".vscode/tasks.json",
        ".mcp.json",
        "sitecustomize.py",
        "conftest.py",
        "x.pth",
        ".git/hooks/pre-commit",
    ]
    return each(lambda name: tried(write, f"{scene.workspace}/{name}"), [name for name in names if "/" not in name])
