"""Fill the scratch.

Source: R25
"""

import itertools

from tests.escape.kit import NO_NAMESPACES, Ends, Scene

EXPECT = Ends("limit_exceeded", "scratch")
VARIES = {NO_NAMESPACES: Ends("execution", "PermissionError")}


def attack(scene: Scene) -> object:
    for number in itertools.count():
        with open(f"/tmp/{number}", "wb") as file:
            file.write(bytes(1 << 20))
    return "filled"
