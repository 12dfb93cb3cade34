"""How many cells and connections a supervisor may have, as far as the machine allows, where nobody says."""

import os
import resource
from pathlib import Path

_OF_A_CELL = 15  # descriptors
_BYTES_OF_A_CELL = 8 * 1024**2  # of an idle one: what it shares with others of its zygote is not in it
_MOST_CELLS = 1024
# A limit and what is used of it, as a container sees its own, in both versions of cgroups.
_MEMORY_FILES = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
_PROCESS_FILES = (
    ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids.current"),
    ("/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids/pids.current"),
)


def default_max_cells() -> int:
    """As many cells as descriptors, processes, processors and memory allow: a cell takes fifteen descriptors here, five
    of them of its cgroup, and three processes while a call lasts. For each core there may be 32, of half of the free
    memory. An idle one takes no time of a core, and is far sooner there than a new one; so where that is more, there
    may be as many as half of the descriptors and a quarter of the free memory hold.
    """
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    by_descriptors = (soft - 128) // _OF_A_CELL if soft != resource.RLIM_INFINITY else 2 * _MOST_CELLS
    by_memory = _free_bytes() // _BYTES_OF_A_CELL
    idle_ones = min(by_descriptors // 2, by_memory // 4, _MOST_CELLS)
    busy_ones = min(by_memory // 2, 32 * (os.cpu_count() or 1))
    return max(4, min(by_descriptors, _free_processes() // 3, max(busy_ones, idle_ones)))


def _free_bytes() -> int:
    """The memory that is available, of the machine and as a container's limit has it."""
    found = [limit - used for limit, used in map(_read_numbers, _MEMORY_FILES) if limit >= 0]
    try:
        with open("/proc/meminfo") as file:
            found.append(1024 * next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:")))
    except FileNotFoundError:
        return 0  # `start` says what is the matter
    return max(0, min(found))


def _free_processes() -> int:
    """How many there may be besides, by a container's limit and by that of the user, which does not bind root."""
    found = [limit - used for limit, used in map(_read_numbers, _PROCESS_FILES) if limit >= 0]
    soft, _hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if os.geteuid() and soft != resource.RLIM_INFINITY:
        found.append(soft)
    return min(found, default=3 * _MOST_CELLS)


def _read_numbers(paths: tuple[str, str]) -> tuple[int, int]:
    """A limit and what is used of it; -1 and 0 where there is none."""
    try:
        limit, used = (int(Path(path).read_text()) for path in paths)
    except (OSError, ValueError):
        return -1, 0  # the other version of cgroups, or "max"
    return limit, used


def default_max_connections() -> int:
    """As many proxied connections as descriptors allow beside the cells: each takes two."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1024
    return max(16, min(1024, (soft - 128 - _OF_A_CELL * default_max_cells()) // 2))
