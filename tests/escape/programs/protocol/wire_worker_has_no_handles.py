"""A Worker finds no handle that it must not have.

Source: X19
"""

from tests.escape.kit import Scene

EXPECT = ["writer", "shell", "channel", "memory_writer"]
KIND = "worker"


def attack(scene: Scene) -> object:
    return [name for name in ("writer", "shell", "channel", "memory_writer") if getattr(scene.ctx, name) is None]
