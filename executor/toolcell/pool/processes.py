"""Sum up what the processes of a call use, from psutil and /proc, if no cgroup counts them.

Sockets are counted, not measured: nothing shows the buffers of another process's sockets. The filter keeps each buffer
at its default size, so a count bounds them.
"""

import contextlib
import ctypes
import os
import struct
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache

from toolcell.wire import forks

_KIB = 1024
_SYSINFO = struct.Struct("l3L6L2H2LI")  # sysinfo(2): uptime, loads, memory (the third is shared), ..., the unit
_info = ctypes.create_string_buffer(128)  # larger than struct sysinfo
_libc = ctypes.CDLL(None, use_errno=True)
_TICKS = os.sysconf("SC_CLK_TCK")
FREE_SOCKETS = 64
"""The sockets of a call that are not charged. An event loop has two, a program that node starts with pipes has six."""
MOST_LOCKS = 4_096
"""The most POSIX locks of a call: 0.8 MiB of kernel memory, which no cgroup counts. SQLite holds five on a database."""
MOST_LOCKS_OF_MANY = 256
"""The most POSIX locks of a call while the machine has more than are counted. Calls with more could hide a call that
has a million."""
_DEFAULT_BUFFER = 212_992  # net.core.wmem_default of most kernels
_LAST_PACKET = 16 * _KIB  # a buffer may be exceeded by one packet
_TCP_CONNECTION = 10 * _KIB * _KIB  # the most that a TCP connection holds: the third figures of tcp_rmem and tcp_wmem
# Read of /proc/locks: a thousand locks, eight thousand. The kernel counts from the first for each page that is read, so
# twice as many take four times as long: these 10 ms of a core, in which the event loop waits.
_FEW_LOCKS_BYTES, _LOCKS_BYTES = 64 * _KIB, 512 * _KIB
_LOCKS_AGE_S = 0.025  # the cells that are watched together share one reading
_LOCKS_REST = 10  # times as long as it took is a reading used, so that a tenth of the event loop's time goes there


@dataclass(slots=True)
class TreeUsage:
    """What the processes of a call use, or have used, in total."""

    tasks: int = 0  # processes and threads
    memory_bytes: int = 0
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Resident:
    """One process's memory in bytes: private (resident, in swap, its page tables) and possibly shared (RssShmem)."""

    pid: int
    private: int
    shared: int


@dataclass(frozen=True, slots=True)
class Sockets:
    """The sockets of one network namespace, and the bytes that TCP and UDP hold on the whole machine."""

    namespace: int
    count: int
    buffered: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What the whole machine uses before the first process of a call has anything."""

    shared: int = 0
    sockets: Sockets = Sockets(0, 0, 0)  # of the host's network namespace, where the processes are in it


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


def descendants(init_pid: int) -> list[int]:
    """The pids of the processes below a cell's init."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        return [process.pid for process in psutil.Process(init_pid).children(recursive=True)]
    return []


def tree_usage(init_pid: int, memory_limit: int, before: Machine) -> TreeUsage:
    """Sum up the processes below a cell's init. CPU time is for the cell's whole life, exact to the clock tick. That of
    dead processes, orphans included, is `reaped_cpu_s`.

    Pages that a process inherited from the init and rewrote are not counted, and neither are shared pages that no
    process maps at this moment.
    """
    with forks.no_fork:  # a fork during the import would never import it: the module's lock stays held there
        import psutil  # takes 10 ms, and a supervisor with cgroups does not need it

    usage = TreeUsage(cpu_s=reaped_cpu_s(init_pid))
    found: list[Resident] = []
    descriptors = 0
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
                descriptors += os.stat(f"/proc/{process.pid}/fd").st_size  # from Linux 6.2 (proc_pid_fd(5)); before, 0
    usage.memory_bytes += _shared_bytes(found, memory_limit - usage.memory_bytes, before.shared)
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        usage.memory_bytes += _socket_bytes(sockets_of(init_pid), before.sockets, descriptors)
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


def sockets_of(pid: int) -> Sockets:
    """The sockets in the network namespace of a process (/proc/pid/net/sockstat), which every user may read."""
    count = pages = 0
    with open(f"/proc/{pid}/net/sockstat", "rb") as file:
        namespace = os.fstat(file.fileno()).st_ino  # each namespace has files of its own
        for line in file:
            words = line.split()
            if words[0] == b"sockets:":
                count = int(words[2])
            elif words[0] in (b"TCP:", b"UDP:"):
                pages += int(words[words.index(b"mem") + 1])
    return Sockets(namespace, count, pages * os.sysconf("SC_PAGESIZE"))


@cache
def most_buffered() -> int:
    """The most bytes that a socket of a cell holds: the filter does not let it have more than the default."""
    try:
        with open("/proc/sys/net/core/wmem_default", "rb") as file:
            return int(file.read()) + _LAST_PACKET
    except OSError:  # a container whose /proc/sys is masked
        return _DEFAULT_BUFFER + _LAST_PACKET


def _socket_bytes(now: Sockets, before: Sockets, descriptors: int) -> int:
    """The most that the sockets of a process tree hold, in bytes.

    In a network namespace of its own, each socket counts as full. In the host's namespace, others open sockets too. So
    the new sockets count, up to the tree's number of `descriptors`, and so does the growth of TCP and UDP memory.
    """
    if now.namespace != before.namespace:
        return max(0, now.count - FREE_SOCKETS) * most_buffered()
    descriptors = descriptors or now.count  # an older kernel does not tell
    count = min(now.count - before.count, descriptors) - FREE_SOCKETS
    held = min(now.buffered - before.buffered, descriptors * _TCP_CONNECTION)
    return max(0, count) * most_buffered() + max(0, held)


@dataclass(frozen=True, slots=True)
class Locks:
    """The POSIX locks of each process, as far as `_LOCKS_BYTES` of the machine's list tell: the kernel lists the newest
    of each core first."""

    held: Counter[int]
    whole: bool
    until: float  # it is used until then, in time.monotonic seconds


_locks = Locks(Counter(), True, 0.0)


def holds_too_many_locks(pids: Callable[[], Collection[int]]) -> bool:
    """Whether these processes together hold more POSIX locks than a call may (/proc/locks). `pids` is called only if
    the machine has more."""
    global _locks
    if time.monotonic() >= _locks.until:
        _locks = _posix_locks()
    most = MOST_LOCKS if _locks.whole else MOST_LOCKS_OF_MANY
    return _locks.held.total() > most and sum(_locks.held[pid] for pid in pids()) > most


def _posix_locks() -> Locks:
    began = time.thread_time()
    held: Counter[int] = Counter()
    whole = True
    fd = os.open("/proc/locks", os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = _read(fd, _FEW_LOCKS_BYTES)
        if len(text) >= _FEW_LOCKS_BYTES:
            text += _read(fd, _LOCKS_BYTES - _FEW_LOCKS_BYTES)
            whole = len(text) < _LOCKS_BYTES
            for line in text.splitlines()[:-1]:  # the last one may be cut
                words = line.split()
                if words[1] == b"POSIX":  # a lock that is waited for has "->" there
                    held[int(words[4])] += 1
    finally:
        os.close(fd)
    return Locks(held, whole, time.monotonic() + max(_LOCKS_AGE_S, _LOCKS_REST * (time.thread_time() - began)))


def _read(fd: int, most: int) -> bytes:
    parts: list[bytes] = []
    while most > 0 and (part := os.read(fd, min(most, _FEW_LOCKS_BYTES))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def resident(pid: int) -> Resident:
    """The memory of a process (proc_pid_status(5)), which every user may read."""
    found = _kib_fields(f"/proc/{pid}/status", (b"RssAnon", b"RssShmem", b"VmSwap", b"VmPTE"))
    shared = found.pop(b"RssShmem", 0)
    return Resident(pid, sum(found.values()), shared)  # a zombie has none


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
