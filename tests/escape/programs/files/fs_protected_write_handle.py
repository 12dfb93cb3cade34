"""With WRITE: protected names by the write handle, also through a link.

Source: F35; codex #24214
"""

import os

from tests.escape.kit import Scene, all_of, tried

EXPECT = "ProtectedName"
GRANTS = "read write"


def attack(scene: Scene) -> object:
    writer = scene.ctx.writer
    os.symlink("repository/.git", f"{scene.workspace}/link")
    return all_of(
        plain=tried(writer.write_text, ".mcp.json", "x"),
        case=tried(writer.write_text, ".VSCode/tasks.json", "x"),
        link=tried(writer.write_text, "link/hooks/pre-commit", "x"),
        replace=tried(writer.replace, "notes.txt", ".envrc"),
        mkdir=tried(writer.mkdir, ".github/hooks"),
        unlink=tried(writer.unlink, "repository/.git/config"),
    )
