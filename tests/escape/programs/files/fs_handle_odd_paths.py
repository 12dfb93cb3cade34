"""Give the handles paths with NUL, climbing, absolute, look-alike and empty parts.

Source: F31; the NUL host article of penligent
"""

from tests.escape.kit import Scene, each, tried

EXPECT = "refused"
GRANTS = "read write"


def attack(scene: Scene) -> object:
    paths = [
        "a\0b",
        "../x",
        "/etc/passwd",
        "..",
        "a/../../x",
        "\u2025/x/../../..",
        "x\0/../../etc",
        "~/../../x",
        "dir/../../outside/n",
    ]
    found = each(
        lambda path: tried(scene.ctx.writer.write_text, path, "x"),
        [path for path in paths if not path.startswith(("\u2025", "~"))],
    )
    return "refused" if found == "ToolFailure" else found
