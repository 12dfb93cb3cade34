"""Control characters for the terminal of whoever reads the result and the output.

Source: own
"""

from tests.escape.kit import Scene

EXPECT = "\x1b]0;owned\x07\x00\u202e"


def attack(scene: Scene) -> object:
    print("\x1b[2J\x1b]0;owned\x07")
    return "\x1b]0;owned\x07\x00\u202e"
