"""With WRITE: put directories and links to directories where the handle writes files.

Source: F18
"""

import os

from tests.escape.kit import Scene, all_of, tried

EXPECT = "ToolFailure"
GRANTS = "read write"


def attack(scene: Scene) -> object:
    os.mkdir(f"{scene.workspace}/out.txt")
    os.symlink("/usr/bin", f"{scene.workspace}/bin")
    return all_of(
        directory=tried(scene.ctx.writer.write_text, "out.txt", "x"),
        link=tried(scene.ctx.writer.write_text, "bin/env", "x"),
    )
