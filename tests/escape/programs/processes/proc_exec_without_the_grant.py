"""Without EXEC: every way to start a program.

Source: V14
"""

import os
import subprocess

from tests.escape.kit import Scene, all_of, asked, in_child, in_child_it, tried

EXPECT = "EACCES"


def attack(scene: Scene) -> object:
    null = os.open("/usr/bin/env", os.O_RDONLY)
    return all_of(
        execve=in_child_it(os.execv, "/usr/bin/env", ["env"]),
        execveat=in_child(lambda: asked("execveat", null, "", None, None, 0x1000)),
        fexecve=in_child_it(os.execve, null, ["env"], {}),
        spawn=tried(os.posix_spawn, "/usr/bin/env", ["env"], {}),
        subprocess=tried(subprocess.run, ["/usr/bin/env"]),
    )
