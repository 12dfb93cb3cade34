"""What is written to the home directory goes away with the call.

Source: F35
"""

import os

from tests.escape.kit import Scene, tried, write

EXPECT = "/tmp"


def attack(scene: Scene) -> object:
    tried(write, os.path.expanduser("~/.bashrc"))
    return os.path.expanduser("~")
