"""With WRITE: a file of a terabyte that takes no space, by truncate, seek and fallocate.

Source: R25
"""

import os

from tests.escape.kit import Scene, all_of, tried

EXPECT = "EFBIG"
GRANTS = "read write"


def attack(scene: Scene) -> object:
    fd = os.open(f"{scene.workspace}/sparse", os.O_RDWR | os.O_CREAT)
    return all_of(
        truncate=tried(os.ftruncate, fd, 1 << 40),
        fallocate=tried(os.posix_fallocate, fd, 0, 1 << 40),
        pwrite=tried(os.pwrite, fd, b"x", 1 << 40),
    )
