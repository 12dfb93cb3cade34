"""Have the supervisor fetch from addresses that are its own, in every spelling.

Source: N19
"""

from tests.escape.kit import Scene, each, tried

EXPECT = "ToolFailure"
GRANTS = "web"


def attack(scene: Scene) -> object:
    hosts = [
        "127.0.0.1",
        "localhost",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "2130706433",
        "0x7f.1",
        "017700000001",
        "127.1",
        "169.254.169.254",
        "10.0.0.1",
        "[fe80::1]",
        "[64:ff9b::7f00:1]",
    ]
    return each(lambda host: tried(scene.ctx.web.fetch, f"http://{host}/"), hosts)
