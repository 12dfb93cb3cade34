"""The classic: mount a cgroup file system and set its release agent.

Source: V15; CVE-2022-0492
"""

from tests.escape.kit import Scene, all_of, asked

EXPECT = "EPERM"


def attack(scene: Scene) -> object:
    return all_of(
        mount=asked("mount", "cgroup", "/tmp", "cgroup", 0, "rdma"),
        unshare=asked("unshare", 0x10000000 | 0x20000 | 0x2000000),
    )
