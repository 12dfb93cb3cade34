"""With EXEC: LD_PRELOAD and a set-id program.

Source: own
"""

import subprocess
import sys

from tests.escape.kit import Scene

EXPECT = "not root"
GRANTS = "read exec"


def attack(scene: Scene) -> object:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", "import os; print(os.geteuid())"],
        capture_output=True,
        text=True,
        env={"LD_PRELOAD": "/tmp/x.so"},
        check=False,
    )
    return "not root" if done.stdout.strip() != "0" else "root"
