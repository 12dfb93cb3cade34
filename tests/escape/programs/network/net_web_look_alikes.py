"""Hosts with NUL, with users, trailing dots and names from two alphabets.

Source: N21; srt wildcard look-alike, the SOCKS NUL bypass
"""

from tests.escape.kit import Scene, each, tried

EXPECT = "ToolFailure"
GRANTS = "web"


def attack(scene: Scene) -> object:
    hosts = [
        "allowed.example.com\0.evil.example.org",
        "allowed.example.com@127.0.0.1",
        "127.0.0.1.",
        "\u24db\u24de\u24d2alhost",
        "127\u30020\u30020\u30021",
        "allowed.example.com#@127.0.0.1",
        "allowed.example.com\\@127.0.0.1",
        "[::1%25lo]",
        "127.0.0.1%00.example.com",
    ]
    return each(lambda host: tried(scene.ctx.web.fetch, f"http://{host}/"), hosts)
