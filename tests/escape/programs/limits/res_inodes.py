"""Use up the inodes of the scratch.

Source: R07; go-judge nr_inodes
"""

import itertools

from tests.escape.kit import NO_NAMESPACES, Ends, Scene

EXPECT = Ends("limit_exceeded", "scratch")
VARIES = {NO_NAMESPACES: Ends("execution", "PermissionError")}


def attack(scene: Scene) -> object:
    for number in itertools.count():
        open(f"/tmp/{number}", "w").close()
    return "filled"
