"""Leave a FIFO, a socket and links in the scratch; the sweep must not wait for them.

Source: F17
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, tried

EXPECT = "ok"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    return all_of(fifo=tried(os.mkfifo, "/tmp/fifo"), link=tried(os.symlink, "/tmp/fifo", "/tmp/link"))
