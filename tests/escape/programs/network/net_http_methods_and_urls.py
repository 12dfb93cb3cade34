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
        "https://rebind.test/",
        f"http://rebind.test:{scene.tcp}/",
        "http://rebind.test/\r\nHost: evil.test",
        "http://rebind.test/ x",
        "file:///etc/passwd",
        "//rebind.test/",
        "http://rebind.test\\@evil.test/",
    ]
    return all_of(
        methods=each(lambda method: tried(ask, method, "http://rebind.test/"), methods),
        urls=each(lambda url: tried(ask, "GET", url), urls),
    )
