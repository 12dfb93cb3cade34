"""Headers that are not a tool's to set, and line ends where a header ends.

Source: N25, of the HTTP handle
"""

from tests.escape.kit import Scene, each, tried

EXPECT = "RequestDenied"
GRANTS = "http"


def attack(scene: Scene) -> object:
    headers = [
        {"Authorization": "Bearer mine"},
        {"Cookie": "a=b"},
        {"Host": "evil.example.org"},
        {"Content-Length": "0"},
        {"Transfer-Encoding": "chunked"},
        {"Proxy-Authorization": "x"},
        {"Content_Length": "9"},
        {"X": "a\r\nHost: evil.example.org"},
        {"X\r\nHost": "evil.example.org"},
        {"X": "a\0b"},
        {"X-HTTP-Method-Override": "DELETE"},
    ]
    return each(
        lambda header: tried(scene.ctx.http.request, "GET", "http://rebind.example.org/", headers=header), headers
    )
