"""Write to a read-only file through a shared mapping.

Source: F24
"""

import mmap
import os

from tests.escape.kit import Scene, tried

EXPECT = "EACCES"


def attack(scene: Scene) -> object:
    fd = os.open(scene.notes, os.O_RDONLY)
    return tried(mmap.mmap, fd, 6, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
