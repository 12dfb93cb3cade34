"""The environment has what the profile lists and nothing more.

Source: I01; monty empty env
"""

import os

from tests.escape.kit import Scene

EXPECT = ["HOME", "LANG", "MALLOC_ARENA_MAX", "PATH", "TMPDIR"]


def attack(scene: Scene) -> object:
    return sorted(os.environ)
