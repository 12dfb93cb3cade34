"""Swap a directory for a symbolic link while the write handle resolves a path through it.

Source: F06; runc CVE-2021-30465
"""

import os
import threading

from tests.escape.kit import Scene, tried

EXPECT = 0
GRANTS = "read write"


def attack(scene: Scene) -> object:
    swapped = f"{scene.workspace}/swap"
    os.mkdir(swapped)

    def swap() -> None:
        while True:
            try:
                os.rename(swapped, swapped + ".d")
                os.symlink(scene.outside, swapped)
                os.unlink(swapped)
                os.rename(swapped + ".d", swapped)
            except OSError:
                continue

    threading.Thread(target=swap, daemon=True).start()
    for _ in range(150):
        tried(scene.ctx.writer.write_text, "swap/stolen", "x")
    return sum(tried(os.stat, f"{scene.outside}/stolen") == "ok" for _ in range(1))
