"""Fill a memfd, which neither RLIMIT_AS nor RLIMIT_FSIZE stops.

Source: R03
"""

import os

from tests.escape.kit import Scene, all_of, asked, tried

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return all_of(
        plain=tried(os.memfd_create, "x"), sealed=tried(os.memfd_create, "x", 2), secret=asked("memfd_secret", 0)
    )
