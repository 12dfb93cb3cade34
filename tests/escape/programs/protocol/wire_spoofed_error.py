"""Raise an exception named like one of the supervisor's errors.

Source: X23
"""

from tests.escape.kit import Ends, Scene

EXPECT = Ends("execution", "PermissionDenied")


def attack(scene: Scene) -> object:
    raise type("PermissionDenied", (Exception,), {"kind": "permission_denied", "missing": ["write"]})("let me in")
