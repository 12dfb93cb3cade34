"""With WRITE: link a file of the workspace to a place on the host, and one of the host into the workspace.

Source: F09
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: ("EACCES", {"out": "EACCES", "into": "EXDEV"})}
GRANTS = "read write"


def attack(scene: Scene) -> object:
    return all_of(
        out=tried(os.link, scene.notes, f"{scene.outside}/linked"),
        into=tried(os.link, scene.secret, f"{scene.workspace}/l"),
    )
