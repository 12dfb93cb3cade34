"""With EXEC: execute what the scratch holds, by its descriptor.

Source: V13
"""

import os
import shutil

from tests.escape.kit import Scene, in_child_it

EXPECT = ("exit 0", "EACCES")
GRANTS = "read exec"


def attack(scene: Scene) -> object:
    try:
        shutil.copyfile("/bin/true", "/tmp/true")
        os.chmod("/tmp/true", 0o755)
    except PermissionError:
        return "EACCES"
    fd = os.open("/tmp/true", os.O_RDONLY)
    return in_child_it(os.execve, fd, ["true"], {})
