"""Change the code that the next call will run: the runner, the tools and the standard library.

Source: F23
"""

import sys

from tests.escape.kit import Scene, tried

EXPECT = "refused"


def attack(scene: Scene) -> object:
    names = ("toolcell_tools", "os", "json", "toolcell.runner.init", "toolcell_sandbox")
    found = {name: tried(open, sys.modules[name].__file__, "r+b") for name in names}
    return "refused" if set(found.values()) <= {"EROFS", "EACCES"} else found
