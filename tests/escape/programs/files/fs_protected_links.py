"""With WRITE: links of both kinds, a FIFO and a directory under protected names.

Source: F35
"""

import os

from tests.escape.kit import Scene, Told

EXPECT = Told("'.envrc'")
GRANTS = "read write"


def attack(scene: Scene) -> object:
    os.symlink("run.sh", f"{scene.workspace}/.envrc")
    os.link(scene.notes, f"{scene.workspace}/.mcp.json")
    os.mkfifo(f"{scene.workspace}/.autoenv")
    os.mkdir(f"{scene.workspace}/.idea")
    return "planted"
