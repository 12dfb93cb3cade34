"""Change the list of users, and what is beside it.

Source: F01
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, tried

EXPECT = ["EACCES", "EROFS", "EROFS"]
VARIES = {NO_NAMESPACES: ["EACCES", "EACCES", "EACCES"]}


def attack(scene: Scene) -> object:
    return [
        tried(os.open, "/etc/passwd", os.O_WRONLY),
        tried(os.unlink, "/etc/passwd"),
        tried(os.open, "/etc/sudoers", os.O_WRONLY | os.O_CREAT),
    ]
