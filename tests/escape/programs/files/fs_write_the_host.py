"""Write, rename, remove and create in a directory of the host that all may write.

Source: F28
"""

import os
import shutil

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, tried, write

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    at = scene.outside
    return all_of(
        write=tried(write, scene.secret),
        append=tried(os.open, scene.secret, os.O_WRONLY | os.O_APPEND),
        create=tried(write, f"{at}/new"),
        remove=tried(os.unlink, scene.secret),
        rename=tried(os.rename, scene.secret, f"{at}/renamed"),
        mkdir=tried(os.mkdir, f"{at}/newdir"),
        rmdir=tried(shutil.rmtree, f"{at}/dir"),
        symlink=tried(os.symlink, "x", f"{at}/link"),
    )
