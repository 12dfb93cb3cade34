"""Without EXEC: run a program of the scratch, by the dynamic loader too.

Source: F25
"""

import os

from tests.escape.kit import Scene, each, in_child_it

EXPECT = "EACCES"


def attack(scene: Scene) -> object:
    loaders = [path for path in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1") if os.path.exists(path)]
    return each(lambda path: in_child_it(os.execv, path, [path, "/usr/bin/env"]), [*loaders, "/usr/bin/env", "/bin/sh"])
