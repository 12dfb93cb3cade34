"""With WRITE: names that another file system takes for protected ones.

Source: F41; CVE-2014-9390
"""

from tests.escape.kit import Ends, Scene, write

EXPECT = Ends("permission_denied", "and 1 more")
GRANTS = "read write"


def attack(scene: Scene) -> object:
    for name in (".MCP.json", "ConfTest.py", "conftest.py.", ".env\u200crc", "\uff43onftest.py", ".npmrc "):
        write(f"{scene.workspace}/{name}")
    return "planted"
