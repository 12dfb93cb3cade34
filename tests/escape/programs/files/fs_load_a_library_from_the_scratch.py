"""Without EXEC: map code from the scratch.

Source: F26
"""

import glob
import mmap
import os
import shutil

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = "EPERM"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    library = next(
        path
        for path in glob.glob("/lib/*/libutil.so*")
        + glob.glob("/usr/lib*/libutil.so*")
        + glob.glob("/usr/lib/*/lib*.so*")
    )
    try:
        shutil.copyfile(library, "/tmp/lib.so")
    except PermissionError:
        return "EACCES"
    fd = os.open("/tmp/lib.so", os.O_RDONLY)
    return tried(mmap.mmap, fd, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
