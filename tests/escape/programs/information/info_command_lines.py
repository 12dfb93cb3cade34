"""Every command line that /proc shows.

Source: I04
"""

import glob
import os

from tests.escape.kit import Scene, read

EXPECT = 0


def attack(scene: Scene) -> object:
    count = 0
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            count += read(path) != b"" and path.split("/")[2] not in ("1", str(os.getpid()))
        except OSError:
            continue
    return count
