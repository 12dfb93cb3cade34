"""With WRITE: rename across directories, out of the host and into it, out of the workspace and into what is read-only.

Source: F09
"""

import os
import sys

from tests.escape.kit import NO_NAMESPACES, Scene, tried

REFUSED = ("EXDEV", "EACCES", "EROFS")
EXPECT = ["ENOENT", "ENOENT", REFUSED, REFUSED]
VARIES = {NO_NAMESPACES: [REFUSED, REFUSED, REFUSED, REFUSED]}
GRANTS = "read write"


def attack(scene: Scene) -> object:
    code = os.path.dirname(os.__file__)
    return [
        tried(os.rename, scene.secret, f"{scene.workspace}/dir/stolen"),
        tried(os.rename, scene.notes, f"{scene.outside}/dir/planted"),
        tried(os.rename, scene.notes, f"{code}/planted.py"),
        tried(os.rename, sys.executable, f"{scene.workspace}/dir/python"),
    ]
