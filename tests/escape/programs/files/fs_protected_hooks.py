"""With WRITE: make a repository that is there run something, by its hooks, its config, or another in its place.

Source: F31; codex #7071
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, Told, tried, write

EXPECT = ["EROFS", "ok", "EBUSY", "EBUSY", "EBUSY", "EXDEV"]
VARIES = {NO_NAMESPACES: Told(".git/")}
GRANTS = "read write"


def attack(scene: Scene) -> object:
    at = f"{scene.workspace}/repository/.git"
    return [
        tried(write, f"{at}/hooks/pre-commit"),
        tried(write, f"{at}/config"),  # a private copy of it
        tried(os.unlink, f"{at}/config"),
        tried(os.rename, f"{at}/hooks", f"{at}/old"),
        tried(os.rename, at, f"{at}.old"),
        tried(os.link, f"{at}/config", f"{scene.workspace}/config"),
    ]
