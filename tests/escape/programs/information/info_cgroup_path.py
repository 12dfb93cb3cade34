"""The cgroup's path.

Source: I11; nsjail order
"""

from tests.escape.kit import NO_NAMESPACES, Scene, each, named, read

EXPECT = "/"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    try:
        text = read("/proc/self/cgroup").decode()
    except OSError as error:
        return named(error.errno or 0)
    return each(lambda line: line.split(":", 2)[2], text.split())
