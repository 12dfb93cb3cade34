"""With WRITE: names that another file system takes for protected ones.

Source: F41; CVE-2014-9390
"""

from tests.escape.kit import Scene, Told, write

EXPECT = Told("and 1 more")
GRANTS = "read write"


def attack(scene: Scene) -> object:
    for name in (".MCP.json", ".VSCode", ".zed.", ".env\u200crc", "\uff0eclaude.json", ".gitCONFIG "):
        write(f"{scene.workspace}/{name}")
    return "planted"
