"""Leave more in the session's values than there may be.

Source: own
"""

from tests.escape.kit import Ends, Scene

EXPECT = Ends("execution", "ctx.values")


def attack(scene: Scene) -> object:
    scene.ctx.values["x"] = "y" * 200_000
    return "left"
