"""Hooks of trace, profile and audit: gone with the process.

Source: Y15
"""

import sys
import threading

from tests.escape.kit import Scene

EXPECT = "hooked"


def attack(scene: Scene) -> object:
    threading.settrace(lambda *_: None)
    sys.setprofile(lambda *_: None)
    sys.addaudithook(lambda *_: None)
    return "hooked"
