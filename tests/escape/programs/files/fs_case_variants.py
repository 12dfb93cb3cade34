"""Names of the host in other cases and normal forms are not there.

Source: F41; claude-code #50781
"""

from tests.escape.kit import NO_NAMESPACES, Scene, read, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: ("ENOENT", "EACCES")}


def attack(scene: Scene) -> object:
    found = {
        tried(read, path)
        for path in (
            scene.secret.upper(),
            scene.outside + "/SECRET.TXT",
            scene.outside + "/secret.txt.",
            scene.outside + "/\uff53ecret.txt",
        )
    }
    return found.pop() if len(found) == 1 else "EACCES" if found == {"ENOENT", "EACCES"} else sorted(found)
