"""Find the cell's init in /proc, read what it says there, and make it the first to go when memory runs out.

Source: own; hidepid=2 exempts the group 0
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, tried

HIDDEN = ("ENOENT", "EPERM")  # EPERM where it is in group 0, once the init itself has looked there
EXPECT = [HIDDEN, HIDDEN, HIDDEN, False]
VARIES = {NO_NAMESPACES: ["EACCES", "EACCES", "EACCES", False]}


def attack(scene: Scene) -> object:
    init = os.getppid()
    names = tried(os.listdir, "/proc") == "ok" and str(init) in os.listdir("/proc")
    return [
        tried(open, f"/proc/{init}/status"),
        tried(open, f"/proc/{init}/cmdline"),
        tried(open, f"/proc/{init}/oom_score_adj", "w"),
        names,
    ]
