"""Have the supervisor fetch from public names that resolve to its own address.

Source: N19
"""

from tests.escape.kit import Scene, each, tried

EXPECT = "ToolFailure"
GRANTS = "web"


def attack(scene: Scene) -> object:
    hosts = ["rebind.example.org", "127.0.0.1.example.org", "example.com"]
    return each(lambda host: tried(scene.ctx.web.fetch, f"http://{host}/"), hosts)
