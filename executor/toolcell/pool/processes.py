"""Sum up what the processes of a call use, from psutil and /proc, if no cgroup counts them."""

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from toolcell import forks

_KIB = 1024
_SYSINFO = struct.Struct("l3L6L2H2LI")  # sysinfo(2): uptime, loads, memory (the third is shared), ..., the unit
_info = ctypes.create_string_buffer(128)  # larger than struct sysinfo
_libc = ctypes.CDLL(None, use_errno=True)
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class TreeUsage:
    """What the processes of a call use, or have used, in total."""

    tasks: int = 0  # processes and threads
    memory_bytes: int = 0
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Resident:
    """One process's resident memory in bytes: private (RssAnon) and possibly shared (RssShmem)."""

    pid: int
    private: int
    shared: int


def open_children(pid: int) -> int:
    """A descriptor of /proc/<pid>/task/<pid>/children, for `first_child`. Raises OSError if the process has ended."""
    return os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)


def first_child(children: int) -> int:
    """The oldest child of a single-threaded process; 0 if it has none or has ended."""
    found = os.pread(children, 64, 0).split(maxsplit=1)  # oldest first: orphans of a call come after the call process
    return int(found[0]) if found else 0


def shared_memory_of_the_machine() -> int:
    """Bytes of shared memory that all processes and memory file systems of the machine use now."""
    if _libc.sysinfo(_info):
        raise OSError(ctypes.get_errno(), "sysinfo")
    fields = _SYSINFO.unpack_from(_info)
    return int(fields[6]) * int(fields[-1])


def tree_usage(init_pid: int, memory_limit: int, shared_before: int) -> TreeUsage:
    """Sum up the processes below a cell's init. CPU time is for the cell's whole life, exact to the clock tick. That of
    dead processes, orphans included, is `reaped_cpu_s`.

    Pages that a process inherited from the init and rewrote are not counted, and neither are shared pages that no
    process maps at this moment. `shared_before` is the machine's shared memory, in bytes, before the first of these
    processes had any.
    """
    with forks.no_fork:  # a fork during the import would never import it: the module's lock stays held there
        import psutil  # takes 10 ms, and a supervisor with cgroups does not need it

    usage = TreeUsage(cpu_s=reaped_cpu_s(init_pid))
    found: list[Resident] = []
    with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        inherited = resident(init_pid).private  # shared with the init by copy-on-write
        for process in psutil.Process(init_pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                times = process.cpu_times()
                usage.tasks += process.num_threads()
                usage.cpu_s += times.user + times.system + times.children_user + times.children_system
                one = resident(process.pid)
                found.append(one)
                usage.memory_bytes += max(0, one.private - inherited)
    usage.memory_bytes += _shared_bytes(found, memory_limit - usage.memory_bytes, shared_before)
    return usage


def reaped_cpu_s(init_pid: int) -> float:
    """CPU seconds of all processes that a cell's init has waited for (cutime and cstime, proc_pid_stat(5))."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{init_pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
        return (int(fields[13]) + int(fields[14])) / _TICKS
    return 0.0  # it has ended


def _shared_bytes(found: Iterable[Resident], room: int, before: int) -> int:
    """The shared memory of a process tree, in bytes. A cheap estimate is used if it is clearly above or below `room`
    bytes; otherwise each process's share is read.

    A segment that eight processes map counts once if their shares are readable (`Pss_Shmem`: for root, and for programs
    that were executed). Otherwise each process is assumed to have its own segment, up to the growth of the machine's
    shared memory since `before`. This can overcount, but forks cannot get around the limit. Memory that other programs
    free meanwhile hides the same amount here, so the machine's total does not grow.
    """
    sizes = {one.pid: one.shared for one in found if one.shared}
    largest, total = max(sizes.values(), default=0), sum(sizes.values())
    if largest > room or total <= room:
        return largest if largest > room else total
    shares = {pid: share for pid in sizes if (share := _share(pid)) is not None}
    unknown = sum(size for pid, size in sizes.items() if pid not in shares)
    return max(largest, sum(shares.values()) + min(unknown, max(0, shared_memory_of_the_machine() - before)))


def resident(pid: int) -> Resident:
    """RssAnon and RssShmem of a process (proc_pid_status(5)), which every user may read."""
    found = _kib_fields(f"/proc/{pid}/status", (b"RssAnon", b"RssShmem"))
    return Resident(pid, found.get(b"RssAnon", 0), found.get(b"RssShmem", 0))  # a zombie has neither


def _share(pid: int) -> int | None:
    """The process's proportional share of shared memory: each page divided by the number of processes that map it.
    None if it may not be read."""
    try:
        return _kib_fields(f"/proc/{pid}/smaps_rollup", (b"Pss_Shmem",)).get(b"Pss_Shmem")
    except PermissionError:
        return None
    except (FileNotFoundError, ProcessLookupError):
        return 0  # the process has ended meanwhile


def _kib_fields(path: str, names: tuple[bytes, ...]) -> dict[bytes, int]:
    """The values of lines such as `RssAnon:  1234 kB` in a file of /proc, in bytes."""
    found: dict[bytes, int] = {}
    with open(path, "rb") as file:
        for line in file:
            name, _, value = line.partition(b":")
            if name in names:
                found[name] = int(value.split()[0]) * _KIB
    return found
