"""With EXEC: what the shell handle runs stands before the same walls.

Source: own
"""

import subprocess

from tests.escape.kit import Scene

EXPECT = ["no socket", "no write", "no secret"]
GRANTS = "read write exec"


def attack(scene: Scene) -> object:
    script = f"echo x > /dev/tcp/127.0.0.1/{scene.tcp} && echo socket || echo no socket; "
    script += "echo x 2>/dev/null > /usr/x && echo write || echo no write; "
    script += f"cat {scene.secret} 2>/dev/null || echo no secret"
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=False)
    return done.stdout.split("\n")[:3]
