"""The kernel's log.

Source: I18
"""

from tests.escape.kit import Scene, asked, each

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return each(lambda kind: asked("syslog", kind, None, 0), [2, 3, 8, 10])
