"""Control groups: the limits and the usage of a whole cell. The supervisor makes them, the cell joins them.

`cgroup_tree` finds the place for them.
"""

import errno
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.syscalls import write_file
from toolcell_sandbox.limits import MIB, Limits

_OWN_PROCESSES = 4  # the cell's init, a standby, the one after that, and the process that forks the init
_TCP_LIMIT, _TCP_PEAK = "memory.kmem.tcp.limit_in_bytes", "memory.kmem.tcp.max_usage_in_bytes"
_AHEAD_BYTES = 4 * MIB  # memory of a call process that is forked ahead while another one runs
_COUNTERS_BYTES = 448  # read from a file of counters: ours are near its start, and longer reads cost a malloc
_NUMBER_BYTES = 64  # read from a file with one number
TCP_SHARE = 8
"""On v1, TCP and UDP buffers are limited apart from other memory: to this part of `memory_bytes`, at least 16 MiB."""
_FILES = ("_peak_fd", "_cpu_fd", "_oom_kills_fd", "_pids_refused_fd", "_tasks_fd")
TYPE_CHECKING = False  # type checkers know this name; an import of typing would take milliseconds
if TYPE_CHECKING:
    from functools import cached_property as _lazy
else:

    class _lazy:
        """As `functools.cached_property`, without the lock that all groups share before Python 3.12. If the program
        forks while another thread opens a file here, the child would have that lock held for ever."""

        def __init__(self, make):
            self._make = make

        def __set_name__(self, owner, name):
            self._name = name

        def __get__(self, instance, owner=None):
            value = vars(instance)[self._name] = self._make(instance)
            return value


class Cgroup:
    """One cell's group: a directory in each v1 hierarchy, or one in v2. Reusable for cell after cell.

    Files that are read in every call stay open: a `pread` takes a microsecond, `open` takes eight.
    """

    def __init__(self, directories: dict[str, str]) -> None:
        self._directories = directories
        self._unified = "unified" in directories
        self._open: list[int] = []  # files
        self._limited_to = 0, 0  # bytes of memory, processes
        self._weighs = 1  # calls, as last written; 0 after a failure
        self.paths: tuple[str, ...] = tuple(dict.fromkeys(directories.values()))

    def __repr__(self) -> str:
        return f"<Cgroup {os.path.basename(self.paths[0])} [{' '.join(self._directories)}]>"

    def set_limits(self, limits: Limits) -> None:
        """Set memory (swap included) and process limits; raises SandboxError when the kernel refuses."""
        wanted = limits.memory_bytes, limits.processes
        if wanted == self._limited_to:  # most cells have the same limits
            return
        self._limited_to = 0, 0  # until all limits are written
        memory, pids = str(limits.memory_bytes + _AHEAD_BYTES), str(limits.processes + _OWN_PROCESSES)
        if self._unified:
            self._write("memory", "memory.max", memory)
            if self._has("memory", "memory.swap.max"):
                self._write("memory", "memory.swap.max", "0")
        elif "memory" in self._directories:
            self._set_v1_memory(memory)
            if self._has("memory", _TCP_LIMIT):  # without a limit, these buffers are not even counted
                self._write("memory", _TCP_LIMIT, str(max(16 * MIB, limits.memory_bytes // TCP_SHARE)))
        if self._has("pids", "pids.max"):
            self._write("pids", "pids.max", pids)
        self._limited_to = wanted

    def _set_v1_memory(self, value: str) -> None:
        names = ["memory.limit_in_bytes"]
        if self._has("memory", "memory.memsw.limit_in_bytes"):
            names.append("memory.memsw.limit_in_bytes")
        try:
            for name in names:
                self._write("memory", name, value)
        except SandboxError as error:
            if error.errno != errno.EINVAL:
                raise
            for name in reversed(names):  # memsw may never be smaller than memory: raise it first
                self._write("memory", name, value)

    def inherit_cores(self) -> None:
        """Let a v1 cpuset, which shares a hierarchy with another controller, take processes: give it its parent's cores
        and memory nodes (cpuset(7)). Raises SandboxError or OSError."""
        directory = None if self._unified else self._directory("cpuset")
        if directory is not None:
            for name, effective in (("cpuset.cpus", "effective_cpus"), ("cpuset.mems", "effective_mems")):
                given = read_file(f"{os.path.dirname(directory)}/cpuset.{effective}").strip()
                self._write("cpuset", name, given)

    @_lazy
    def can_weigh(self) -> bool:
        """Whether the group has a CPU weight."""
        return self._has("cpu", "cpu.weight" if self._unified else "cpu.shares")

    def weigh(self, calls: int) -> None:
        """Give the group the CPU weight of one process, divided by `calls`. Raises SandboxError."""
        if calls != self._weighs:
            self._weighs = 0
            name, whole = ("cpu.weight", 100) if self._unified else ("cpu.shares", 1024)
            self._write("cpu", name, str(max(2, round(whole / calls))))
            self._weighs = calls

    def oom_kills(self) -> int:
        """The number of processes killed at the memory limit since the group was made."""
        fd = self._oom_kills_fd
        return _counter(b"oom_kill ", os.pread(fd, _COUNTERS_BYTES, 0)) if fd >= 0 else 0

    def pids_refused(self) -> int:
        """The number of forks that the process limit refused since the group was made."""
        fd = self._pids_refused_fd
        return _counter(b"max ", os.pread(fd, _COUNTERS_BYTES, 0)) if fd >= 0 else 0

    def tasks(self) -> int:
        """The number of processes and threads in the group, with the cell's init; 0 if they are not counted."""
        fd = self._tasks_fd
        return int(os.pread(fd, _NUMBER_BYTES, 0)) if fd >= 0 else 0

    def memory_peak(self) -> int | None:
        """The peak of memory in bytes since the group was made or `reset_peak`; None if it is not counted."""
        fd = self._peak_fd
        return int(os.pread(fd, _NUMBER_BYTES, 0)) if fd >= 0 else None

    def reset_peak(self) -> bool:
        """Reset `memory_peak`. Returns False if it is not counted, or on v2 before Linux 6.12, which cannot do this."""
        fd = self._peak_fd
        if fd < 0:
            return False
        try:
            os.pwrite(fd, b"reset" if self._unified else b"0", 0)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ESPIPE):  # kernfs returns these to root and to others
                raise
            return False
        return True

    def socket_peak(self) -> int:
        """The peak of TCP and UDP buffers in bytes, where v1 counts them apart from other memory; else 0. Only cells
        with a network are asked for it, so no descriptor is kept for it."""
        return int(read_file(f"{self._directories['memory']}/{_TCP_PEAK}")) if self._has("memory", _TCP_PEAK) else 0

    def reset_socket_peak(self) -> None:
        """Reset `socket_peak`. Raises OSError."""
        if self._has("memory", _TCP_PEAK):
            with open(f"{self._directories['memory']}/{_TCP_PEAK}", "wb", buffering=0) as file:
                file.write(b"0")

    def cpu_s(self) -> float | None:
        """CPU seconds of all processes that ever ran in the group; None if they are not counted."""
        fd = self._cpu_fd
        if fd < 0:
            return None
        if self._unified:
            return _counter(b"usage_usec ", os.pread(fd, _COUNTERS_BYTES, 0)) / 1e6
        return int(os.pread(fd, _NUMBER_BYTES, 0)) / 1e9

    @_lazy
    def _peak_fd(self) -> int:
        """The descriptor of the file of `memory_peak`; -1 without one."""
        name = "memory.peak" if self._unified else "memory.max_usage_in_bytes"
        return self._opened("memory", name) if self._has("memory", name) else -1

    @_lazy
    def _cpu_fd(self) -> int:
        return self._opened("cpuacct", "cpu.stat" if self._unified else "cpuacct.usage")

    @_lazy
    def _oom_kills_fd(self) -> int:
        return self._opened("memory", "memory.events" if self._unified else "memory.oom_control")

    @_lazy
    def _pids_refused_fd(self) -> int:
        return self._opened("pids", "pids.events")

    @_lazy
    def _tasks_fd(self) -> int:
        return self._opened("pids", "pids.current")

    def processes(self) -> list[int]:
        """Pids of all processes in any of the group's directories."""
        found: set[int] = set()
        for path in self.paths:
            found.update(int(line) for line in read_file(f"{path}/cgroup.procs").split())
        return sorted(found)

    def kill(self, timeout_s: float = 2.0) -> None:
        """Kill every process in the group and wait until it is empty. Raises SandboxError after `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        while True:
            left = self.kill_now()
            if not left:
                return
            if time.monotonic() > deadline:
                raise SandboxError(f"Processes of a cgroup do not die: {left}", step="kill cgroup", mechanism="cgroup")
            time.sleep(0.001)

    def kill_now(self) -> list[int]:
        """Send SIGKILL to every process in the group, without waiting. Returns their pids."""
        pids = self.processes()
        if not pids:
            return pids
        if self._has("unified", "cgroup.kill"):
            self._write("unified", "cgroup.kill", "1")
            return pids
        for pid in pids:
            try:
                pidfd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue  # gone meanwhile
            try:
                if pid in self.processes():  # the pid was not reused between its reading and pidfd_open
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            except ProcessLookupError:
                pass  # gone meanwhile
            finally:
                os.close(pidfd)
        return pids

    def exists(self) -> bool:
        """Whether all its directories exist."""
        return all(map(os.path.isdir, self.paths))

    def open(self) -> None:
        """Open the files that are read in every call, ahead of the first call. Raises OSError if that fails."""
        for name in _FILES:
            getattr(self, name)

    def close(self) -> None:
        """Close the open files. A later read opens its file again."""
        for fd in self._open:
            with suppress(OSError):  # close(2) releases it whatever it returns
                os.close(fd)
        self._open.clear()
        for name in _FILES:
            self.__dict__.pop(name, None)

    def remove(self, timeout_s: float = 2.0) -> None:
        """Remove the directories. The kernel returns EBUSY for a moment after the last process died, so it tries
        again."""
        self.close()
        deadline = time.monotonic() + timeout_s
        failures: list[SandboxError] = []
        for path in self.paths:
            try:
                _remove(path, deadline)
            except SandboxError as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

    def _directory(self, controller: str) -> str | None:
        return self._directories.get("unified") if self._unified else self._directories.get(controller)

    def _has(self, controller: str, name: str) -> bool:
        directory = self._directory(controller)
        return directory is not None and os.path.exists(f"{directory}/{name}")

    def _opened(self, controller: str, name: str) -> int:
        """The descriptor of one of the group's files, writable if possible; -1 if the group lacks the controller."""
        directory = self._directory(controller)
        if directory is None:
            return -1
        path = f"{directory}/{name}"
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EINVAL):  # kernfs returns EINVAL to root
                raise
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._open.append(fd)
        return fd

    def _write(self, controller: str, name: str, text: str) -> None:
        write_file(f"{self._directory(controller)}/{name}", text, step=f"write {name}", mechanism="cgroup")


def _remove(path: str, deadline: float) -> None:
    while True:
        try:
            os.rmdir(path)
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.EINTR, errno.ENOMEM) or time.monotonic() > deadline:
                raise SandboxError(
                    f"A cgroup cannot be removed: {path}",
                    step="remove cgroup",
                    mechanism="cgroup",
                    errno=error.errno or 0,
                    cure="Kill what is in it first.",
                ) from error
        time.sleep(0.001)


def _counter(key: bytes, text: bytes) -> int:
    """The number after this key. The key is not a part of another key."""
    start = text.find(key)
    if start < 0:
        name = key.strip().decode()
        raise SandboxError(f"The cgroup has no counter {name}", step="read cgroup", mechanism="cgroup")
    return int(text[start + len(key) : text.index(b"\n", start)])


def join(paths: Iterable[str], root: int | None = None) -> None:
    """Move this process into these groups, as seen from the directory `root`. It must be single-threaded.

    On v1 the thread moves itself (`tasks`). The move of a process waits for an RCU grace period of the whole machine, 4
    to 12 ms, because the process must not fork meanwhile (cgroup_procs_write_start in kernel/cgroup/cgroup.c).
    """
    for path in paths:
        try:
            fd = _open_members(path if root is None else path.lstrip("/"), root)
            try:
                os.write(fd, b"0")
            finally:
                os.close(fd)
        except OSError as error:
            raise SandboxError(
                f"join {path} failed",
                step=f"join {path}",
                mechanism="cgroup",
                errno=error.errno or 0,
                cure="Is the cgroup still there?",
            ) from error


def _open_members(path: str, root: int | None) -> int:
    flags = os.O_WRONLY | os.O_CLOEXEC
    try:
        return os.open(f"{path}/tasks", flags, dir_fd=root)
    except FileNotFoundError:
        return os.open(f"{path}/cgroup.procs", flags, dir_fd=root)


def limited_by(paths: Iterable[str]) -> frozenset[str]:
    """The limited resources of these groups: "memory", "pids", both or neither."""
    return frozenset[str]().union(*map(_limited_by, paths))


@lru_cache(maxsize=1024)  # groups are reused, and their controllers never change
def _limited_by(path: str) -> frozenset[str]:
    files = {"memory.limit_in_bytes": "memory", "memory.max": "memory", "pids.max": "pids"}
    return frozenset(what for name, what in files.items() if os.path.exists(f"{path}/{name}"))


def read_file(path: str) -> str:
    """The text of a small kernel file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts: list[bytes] = []
        while part := os.read(fd, 65536):
            parts.append(part)
    finally:
        os.close(fd)
    return b"".join(parts).decode()
