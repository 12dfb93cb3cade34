"""With EXEC: data as code runs, with the limits of the call and nothing more.

Source: F25; the path-alias article
"""

import subprocess

from tests.escape.kit import NO_NAMESPACES, Scene

EXPECT = ["3", "Permission denied"]
VARIES = {NO_NAMESPACES: ["EACCES", "EACCES"]}
GRANTS = "read exec"


def attack(scene: Scene) -> object:
    try:
        with open("/tmp/x.sh", "w") as file:
            file.write("echo $((1+2)); : > /usr/x; : </etc/shadow")
    except PermissionError:
        return ["EACCES", "EACCES"]
    done = subprocess.run(["/bin/sh", "/tmp/x.sh"], capture_output=True, text=True, check=False)
    said = [word for word in ("Read-only", "denied") if word in done.stderr]
    return [done.stdout.strip(), "Permission denied" if said else done.stderr]
