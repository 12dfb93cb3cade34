"""The default numbers of cells and connections of a supervisor, from the machine's resources."""

import os
import resource
from pathlib import Path

_OF_A_CELL = 15  # descriptors
_BYTES_OF_A_CELL = 8 * 1024**2  # private memory of an idle cell
_MOST_CELLS = 1024
# Files with a limit and its present use, as a container sees them, in both versions of cgroups.
_MEMORY_FILES = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
_PROCESS_FILES = (
    ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids.current"),
    ("/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids/pids.current"),
)


def default_max_cells() -> int:
    """The number of cells that descriptors, processes, cores and memory allow. A cell takes 15 descriptors here, 5 of
    them for its cgroup, and 3 processes during a call. There may be 32 cells for each core, in half of the free memory.
    An idle cell takes no CPU time and is far faster than a new one. So if half of the descriptors and a quarter of the
    free memory hold more cells, that number is allowed.
    """
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    by_descriptors = (soft - 128) // _OF_A_CELL if soft != resource.RLIM_INFINITY else 2 * _MOST_CELLS
    by_memory = _free_bytes() // _BYTES_OF_A_CELL
    idle_ones = min(by_descriptors // 2, by_memory // 4, _MOST_CELLS)
    busy_ones = min(by_memory // 2, 32 * (os.cpu_count() or 1))
    return max(4, min(by_descriptors, _free_processes() // 3, max(busy_ones, idle_ones)))


def _free_bytes() -> int:
    """The available memory in bytes, by the machine and by a container's limit."""
    found = [limit - used for limit, used in map(_read_numbers, _MEMORY_FILES) if limit >= 0]
    try:
        with open("/proc/meminfo") as file:
            found.append(1024 * next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:")))
    except FileNotFoundError:
        return 0  # `start` reports the reason
    return max(0, min(found))


def _free_processes() -> int:
    """How many more processes are allowed, by a container's limit and by the user's, which does not apply to root."""
    found = [limit - used for limit, used in map(_read_numbers, _PROCESS_FILES) if limit >= 0]
    soft, _hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if os.geteuid() and soft != resource.RLIM_INFINITY:
        found.append(soft)
    return min(found, default=3 * _MOST_CELLS)


def _read_numbers(paths: tuple[str, str]) -> tuple[int, int]:
    """A limit and its present use; -1 and 0 if there is no limit."""
    try:
        limit, used = (int(Path(path).read_text()) for path in paths)
    except (OSError, ValueError):
        return -1, 0  # the other version of cgroups, or "max"
    return limit, used


def default_max_connections() -> int:
    """The number of proxied connections that the descriptors allow besides the cells. Each connection takes two."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1024
    return max(16, min(1024, (soft - 128 - _OF_A_CELL * default_max_cells()) // 2))
