"""Have the supervisor ask addresses that are its own: by a name that the rules list, and in every spelling.

Source: N19, of the HTTP handle
"""

from tests.escape.kit import Scene, each, tried

EXPECT = "RequestDenied"
GRANTS = "http"


def attack(scene: Scene) -> object:
    hosts = [
        "rebind.example.org",
        "127.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "2130706433",
        "0x7f.1",
        "169.254.169.254",
        "user@rebind.example.org",
        "rebind.example.org.evil.example.org",
    ]
    return each(lambda host: tried(scene.ctx.http.request, "GET", f"http://{host}/"), hosts)
