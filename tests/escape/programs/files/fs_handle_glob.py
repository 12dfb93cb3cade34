"""Have the read handle list and match beyond the workspace.

Source: F31
"""

from tests.escape.kit import Scene

EXPECT = "nothing"


def attack(scene: Scene) -> object:
    found = []
    for pattern in ("../*", "/etc/*", "**/../../*", "to_outside/*", "*/../../outside/*"):
        try:
            found += scene.ctx.workspace.glob(pattern)
        except Exception:
            continue
    return "nothing" if not any("secret" in one or one.startswith(("/", "..")) for one in found) else found
