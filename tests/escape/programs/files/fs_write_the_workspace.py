"""Without WRITE: change the workspace in every way.

Source: F23
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, tried, write

EXPECT = "EROFS"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    at = scene.workspace
    return all_of(
        write=tried(write, scene.notes),
        create=tried(write, f"{at}/new"),
        remove=tried(os.unlink, scene.notes),
        rename=tried(os.rename, scene.notes, f"{at}/other"),
        mkdir=tried(os.mkdir, f"{at}/newdir"),
        rmdir=tried(os.rmdir, f"{at}/dir"),
        symlink=tried(os.symlink, "x", f"{at}/newlink"),
        fifo=tried(os.mkfifo, f"{at}/fifo"),
    )
