"""The processes that /proc lists: its init and itself.

Source: I10
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, named

EXPECT = True
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    try:
        return {int(name) for name in os.listdir("/proc") if name.isdecimal()} <= {1, os.getpid()}
    except OSError as error:
        return named(error.errno or 0)
