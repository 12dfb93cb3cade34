"""With EXEC: bash's /dev/tcp.

Source: N13; Codex blocks_dev_tcp_redirection
"""

import subprocess

from tests.escape.kit import Scene

EXPECT = ["", "refused"]
GRANTS = "read exec"


def attack(scene: Scene) -> object:
    done = subprocess.run(
        ["/bin/bash", "-c", f"echo x > /dev/tcp/127.0.0.1/{scene.tcp} && echo out"],
        capture_output=True,
        text=True,
        check=False,
    )
    return [done.stdout, "refused" if done.returncode else "connected"]
