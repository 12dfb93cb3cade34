"""Plant a .pth, a sitecustomize and a conftest where the interpreter looks.

Source: F35
"""

import sys

from tests.escape.kit import NO_NAMESPACES, Scene, each, tried, write

EXPECT = "EROFS"
VARIES = {NO_NAMESPACES: "EACCES"}
GRANTS = "read write"


def attack(scene: Scene) -> object:
    place = next(path for path in sys.path if path.endswith("site-packages"))
    return each(lambda name: tried(write, f"{place}/{name}"), ["hostile.pth", "sitecustomize.py", "usercustomize.py"])
