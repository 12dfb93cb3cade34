"""With WRITE: move a repository aside and put another with hooks in its place.

Source: F31; srt #98
"""

import os

from tests.escape.kit import Scene, Told, write

EXPECT = Told("repository/.git/hooks")
GRANTS = "read write"


def attack(scene: Scene) -> object:
    at = f"{scene.workspace}/repository"
    os.rename(at, f"{at}.old")
    os.makedirs(f"{at}/.git/hooks")
    write(f"{at}/.git/hooks/pre-commit")
    return "replaced"
