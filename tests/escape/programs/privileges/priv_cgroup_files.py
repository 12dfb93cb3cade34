"""Write the cgroup's files.

Source: V15; snekbox PR #55
"""

from tests.escape.kit import NO_NAMESPACES, Scene, each, tried, write

EXPECT = "ENOENT"
VARIES = {NO_NAMESPACES: ("EACCES", "ENOENT")}


def attack(scene: Scene) -> object:
    return each(
        lambda path: tried(write, path),
        ["/sys/fs/cgroup/pids/cgroup.procs", "/sys/fs/cgroup/memory/release_agent", "/sys/fs/cgroup/cgroup.procs"],
    )
