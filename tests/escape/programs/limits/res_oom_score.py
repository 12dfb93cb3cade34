"""Make itself the last to be killed when memory runs out.

Source: R37
"""

from tests.escape.kit import Scene, tried

EXPECT = ("EACCES", "EPERM")


def attack(scene: Scene) -> object:
    return tried(lambda: open("/proc/self/oom_score_adj", "w").write("-1000"))
