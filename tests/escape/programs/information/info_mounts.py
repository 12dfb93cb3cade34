"""The sources of mounts: what the host's disks are called and where things lie.

Source: I08
"""

from tests.escape.kit import NO_NAMESPACES, ROOT, Scene, named, read

EXPECT = "nothing of the host"
VARIES = {NO_NAMESPACES: "EACCES", ROOT: "nothing of the host"}


def attack(scene: Scene) -> object:
    try:
        text = read("/proc/self/mountinfo").decode()
    except OSError as error:
        return named(error.errno or 0)
    return "nothing of the host" if scene.outside not in text and "/boot" not in text else text
