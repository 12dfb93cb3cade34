"""Have the supervisor fetch from the canary's port.

Source: N19
"""

from tests.escape.kit import Scene, each, tried

EXPECT = "ToolFailure"
GRANTS = "web"


def attack(scene: Scene) -> object:
    return each(
        lambda host: tried(scene.ctx.web.fetch, f"http://{host}:{scene.tcp}/"),
        ["127.0.0.1", "localhost", "rebind.example.org", "example.com"],
    )
