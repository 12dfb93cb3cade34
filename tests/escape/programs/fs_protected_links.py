"""With WRITE: links of both kinds, a FIFO and a directory under protected names.

Source: F35
"""

import os

from tests.escape.kit import Ends, Scene

EXPECT = Ends("permission_denied", "'.envrc'")
GRANTS = "read write"


def attack(scene: Scene) -> object:
    os.symlink("run.sh", f"{scene.workspace}/.envrc")
    os.link(scene.notes, f"{scene.workspace}/.mcp.json")
    os.mkfifo(f"{scene.workspace}/x.pth")
    os.mkdir(f"{scene.workspace}/.idea")
    return "planted"
