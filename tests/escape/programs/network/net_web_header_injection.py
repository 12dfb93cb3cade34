"""Line ends in the URL.

Source: N25
"""

from tests.escape.kit import Scene, each, tried

EXPECT = "ToolFailure"
GRANTS = "web"


def attack(scene: Scene) -> object:
    return each(
        lambda tail: tried(scene.ctx.web.fetch, f"http://rebind.example.org/{tail}"),
        ["\r\nHost: x", " HTTP/1.1\r\nX: y", "\nx", "\tx", "\x0b"],
    )
