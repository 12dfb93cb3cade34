"""What the processes of a call use together, added up through psutil and /proc: for where no cgroup counts them."""

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass

_KIB = 1024
_SYSINFO = struct.Struct("l3L6L2H2LI")  # sysinfo(2): uptime, loads, memory (the third is shared), ..., the unit
_info = ctypes.create_string_buffer(128)  # more than it has
_libc = ctypes.CDLL(None, use_errno=True)
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class TreeUsage:
    """What the processes of a call use, or have used, together."""

    tasks: int = 0  # processes and threads
    memory_bytes: int = 0
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Resident:
    """What one process has in memory, in bytes: its own (RssAnon) and what may be shared (RssShmem)."""

    pid: int
    private: int
    shared: int


def open_children(pid: int) -> int:
    """A descriptor of the list of a process's children, for `first_child`; OSError where it has ended."""
    return os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)


def first_child(children: int) -> int:
    """The oldest child of a process of one thread, 0 where it has none or has ended."""
    found = os.pread(children, 64, 0).split(maxsplit=1)  # oldest first: orphans of a call come after its process
    return int(found[0]) if found else 0


def shared_memory_of_the_machine() -> int:
    """Bytes of shared memory that all processes and file systems in memory have now."""
    if _libc.sysinfo(_info):
        raise OSError(ctypes.get_errno(), "sysinfo")
    fields = _SYSINFO.unpack_from(_info)
    return int(fields[6]) * int(fields[-1])


def tree_usage(init_pid: int, memory_limit: int, shared_before: int) -> TreeUsage:
    """Add up the processes below a cell's init. CPU is exact to the clock tick, and of the cell's whole life: what the
    dead have used, orphans among them, is `reaped_cpu_s`.

    What a process rewrites of the memory that it inherited from the init is not counted, and neither are shared pages
    that no process has mapped at this moment. `shared_before` is the machine's shared memory from before the first of
    these processes had any.
    """
    import psutil  # ten milliseconds of an import that a supervisor with cgroups can do without

    usage = TreeUsage(cpu_s=reaped_cpu_s(init_pid))
    found: list[Resident] = []
    with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        inherited = resident(init_pid).private  # what every fork of the init shares with it, by copy on write
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
    """Shared memory of a tree. Cheap where it is surely above `room` bytes or surely not; else by each one's share.

    A segment that eight processes map counts once if their shares can be read (`Pss_Shmem`: as root, and of programs
    that were executed). Of other processes each is held to have memory of its own, up to all the shared memory
    that the machine has now and had not `before`: rather a pool that shares too much than a limit that forks get
    around. What others free meanwhile hides as much here, and no more, so that all together take no more than before.
    """
    sizes = {one.pid: one.shared for one in found if one.shared}
    largest, total = max(sizes.values(), default=0), sum(sizes.values())
    if largest > room or total <= room:
        return largest if largest > room else total
    shares = {pid: share for pid in sizes if (share := _share(pid)) is not None}
    unknown = sum(size for pid, size in sizes.items() if pid not in shares)
    return max(largest, sum(shares.values()) + min(unknown, max(0, shared_memory_of_the_machine() - before)))


def resident(pid: int) -> Resident:
    """RssAnon and RssShmem of a process (proc_pid_status(5)), which anybody may read."""
    found = _kib_fields(f"/proc/{pid}/status", (b"RssAnon", b"RssShmem"))
    return Resident(pid, found.get(b"RssAnon", 0), found.get(b"RssShmem", 0))  # a zombie has neither


def _share(pid: int) -> int | None:
    """The process's share of shared memory: each page divided by how many map it. None where it may not be read."""
    try:
        return _kib_fields(f"/proc/{pid}/smaps_rollup", (b"Pss_Shmem",)).get(b"Pss_Shmem")
    except PermissionError:
        return None
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it has ended meanwhile


def _kib_fields(path: str, names: tuple[bytes, ...]) -> dict[bytes, int]:
    """Lines such as `RssAnon:  1234 kB` of a file of /proc, in bytes."""
    found: dict[bytes, int] = {}
    with open(path, "rb") as file:
        for line in file:
            name, _, value = line.partition(b":")
            if name in names:
                found[name] = int(value.split()[0]) * _KIB
    return found
