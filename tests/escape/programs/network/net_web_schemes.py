"""Other schemes than http and https.

Source: N23; claude-code #40213
"""

from tests.escape.kit import Scene, each, tried

EXPECT = "ToolFailure"
GRANTS = "web"


def attack(scene: Scene) -> object:
    urls = [
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "gopher://127.0.0.1:25/",
        "unix:/run/x.sock",
        "data:text/plain,x",
        "//127.0.0.1/",
        "http:127.0.0.1",
        "HTTP+UNIX://x/",
    ]
    return each(lambda url: tried(scene.ctx.web.fetch, url), urls)
