"""Plant bytecode beside a module of the standard library.

Source: F23
"""

import json
import os

from tests.escape.kit import NO_NAMESPACES, Scene, tried, write

EXPECT = "EROFS"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    return tried(write, os.path.join(os.path.dirname(json.__file__), "__pycache__", "hostile.cpython-311.pyc"))
