"""When memory runs out, this process goes before those of the host.

Source: R37
"""

from tests.escape.kit import NO_NAMESPACES, Scene, named, read

EXPECT = True
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    try:
        return int(read("/proc/self/oom_score_adj")) >= 200
    except OSError as error:
        return named(error.errno or 0)
