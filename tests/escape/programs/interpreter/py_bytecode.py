"""Crash the interpreter by bytecode that it never checks.

Source: Y04
"""

import types

from tests.escape.kit import Ends, Scene

EXPECT = (Ends("crashed"), Ends("execution"))


def attack(scene: Scene) -> object:
    code = (lambda: None).__code__
    evil = code.replace(co_code=bytes([100, 255] * 20), co_consts=(), co_stacksize=0)
    return types.FunctionType(evil, {})()
