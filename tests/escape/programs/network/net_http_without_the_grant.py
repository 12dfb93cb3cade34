"""Without HTTP there is no handle, and a forged request finds no row.

Source: N19, of the HTTP handle
"""

from tests.escape.kit import Scene, request

EXPECT = [True, "permission_denied"]


def attack(scene: Scene) -> object:
    answer = request("http.request", {"method": "GET", "url": "http://rebind.example.org/", "headers": {}, "body": b""})
    return [scene.ctx.http is None, answer["value"]["kind"]]
