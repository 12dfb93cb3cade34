"""With EXEC: a child interpreter and the system's programs connect no better.

Source: N13
"""

import subprocess
import sys

from tests.escape.kit import Scene

EXPECT = "EAFNOSUPPORT"
GRANTS = "read exec"


def attack(scene: Scene) -> object:
    code = "import errno, socket, sys\ntry:\n"
    code += "    socket.create_connection(('127.0.0.1', int(sys.argv[1])), 0.5)\n    print('ok')\n"
    code += "except OSError as error:\n    print(errno.errorcode[error.errno])"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(scene.tcp)], capture_output=True, text=True, check=False
    ).stdout.strip()
