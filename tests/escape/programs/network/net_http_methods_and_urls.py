"""Methods, schemes, ports and line ends that no rule has, at the one host that the rules list.

Source: N25, of the HTTP handle
"""

from tests.escape.kit import Scene, all_of, each, tried

EXPECT = "RequestDenied"
GRANTS = "http"


def attack(scene: Scene) -> object:
    ask = scene.ctx.http.request
    methods = ["POST", "DELETE", "TRACE", "CONNECT", "GET /x HTTP/1.1\r\nX: y", ""]
    urls = [
        "https://rebind.example.org/",
        f"http://rebind.example.org:{scene.tcp}/",
        "http://rebind.example.org/\r\nHost: evil.example.org",
        "http://rebind.example.org/ x",
        "file:///etc/passwd",
        "//rebind.example.org/",
        "http://rebind.example.org\\@evil.example.org/",
    ]
    return all_of(
        methods=each(lambda method: tried(ask, method, "http://rebind.example.org/"), methods),
        urls=each(lambda url: tried(ask, "GET", url), urls),
    )
