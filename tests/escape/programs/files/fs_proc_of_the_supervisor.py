"""Open the memory, environment and descriptors of the supervisor.

Source: F13; DMOJ kill_judge
"""

from tests.escape.kit import NO_NAMESPACES, Scene, each, tried

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: "EACCES"}


def attack(scene: Scene) -> object:
    return each(
        lambda name: tried(open, f"/proc/{scene.supervisor}/{name}"),
        ["mem", "environ", "fd/0", "maps", "cmdline", "root"],
    )
