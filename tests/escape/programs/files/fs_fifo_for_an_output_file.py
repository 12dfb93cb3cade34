"""With WRITE: put a FIFO where a result is expected, and have the handles open it.

Source: F17; go-judge copy-out FIFO
"""

import os

from tests.escape.kit import Scene, all_of, tried

EXPECT = "ToolFailure"
GRANTS = "read write"


def attack(scene: Scene) -> object:
    os.mkfifo(f"{scene.workspace}/out.txt")
    return all_of(
        read=tried(scene.ctx.workspace.read_bytes, "out.txt"), write=tried(scene.ctx.writer.write_text, "out.txt", "x")
    )
