"""With EXEC: set-id programs of the system run without the rights of their owner.

Source: V01; srt privilege escalation
"""

import shutil
import subprocess

from tests.escape.kit import Scene

from toolcell_sandbox.kernel.syscalls import attempt

EXPECT = 0
GRANTS = "read exec"


def attack(scene: Scene) -> object:
    gained = 0
    for name in ("su", "sudo", "ping", "mount", "passwd", "newgrp", "pkexec"):
        path = shutil.which(name)
        if path is None:
            continue
        with subprocess.Popen(
            [path, "-h"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as run:
            gained += attempt("prctl", 39, 0, 0, 0, 0) != 1
            run.kill()
    return gained
