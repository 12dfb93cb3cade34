"""Huge pages of the machine's pool, which no memory cgroup counts: of any size, and by each call that can ask for them.

Source: R05
"""

from tests.escape.kit import Scene, all_of, asked

EXPECT = "EPERM"
ANONYMOUS, READ_WRITE, MAP_HUGETLB = 0x22, 3, 0x40000
MFD_HUGETLB, SHM_HUGETLB = 4, 0o4000


def attack(scene: Scene) -> object:
    size = 2 << 20
    return all_of(
        mmap=asked("mmap", None, size, READ_WRITE, ANONYMOUS | MAP_HUGETLB, -1, 0),
        large=asked("mmap", None, 1 << 30, READ_WRITE, ANONYMOUS | MAP_HUGETLB | 30 << 26, -1, 0),
        high=asked("mmap", None, size, READ_WRITE, 0x1_0000_0000 | ANONYMOUS | MAP_HUGETLB, -1, 0),
        memfd=asked("memfd_create", "x", MFD_HUGETLB),
        segment=asked("shmget", 0, size, 0o1600 | SHM_HUGETLB),
    )
