"""Remove or replace /tmp itself.

Source: F40
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, tried

EXPECT = ("EBUSY", "EROFS")
VARIES = {NO_NAMESPACES: ("EACCES", "EPERM", "EBUSY")}


def attack(scene: Scene) -> object:
    return all_of(remove=tried(os.rmdir, "/tmp"), rename=tried(os.rename, "/tmp", "/gone"))
