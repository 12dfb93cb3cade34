"""Without WEB there is no handle, and a forged request finds no row.

Source: N19
"""

from tests.escape.kit import Scene, request

EXPECT = [True, "permission_denied"]


def attack(scene: Scene) -> object:
    answer = request("web.fetch", {"url": "http://rebind.example.org/", "max_bytes": 10})
    return [scene.ctx.web is None, answer["value"]["kind"]]
