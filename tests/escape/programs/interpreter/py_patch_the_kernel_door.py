"""Patch the functions by which the sandbox speaks to the kernel: the next call is a new process.

Source: Y11
"""

import sys

from tests.escape.kit import Scene

EXPECT = "patched"


def attack(scene: Scene) -> object:
    for name, module in list(sys.modules.items()):
        if name.startswith("toolcell_sandbox.mechanisms"):
            for function in [key for key, value in vars(module).items() if callable(value)]:
                setattr(module, function, lambda *_, **__: 0)
    return "patched"
