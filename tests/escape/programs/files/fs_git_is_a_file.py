"""With WRITE: a .git file that points elsewhere changes nothing there.

Source: F33; srt #98, codex #7071
"""

from tests.escape.kit import Scene, Told, tried, write

EXPECT = Told("'.git'")
GRANTS = "read write"


def attack(scene: Scene) -> object:
    with open(f"{scene.workspace}/.git", "w") as file:
        file.write(f"gitdir: {scene.outside}/dir\n")
    return tried(write, f"{scene.outside}/dir/hooks")
