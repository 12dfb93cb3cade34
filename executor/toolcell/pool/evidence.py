"""Which limit a call hit, by what the kernel counted: cgroup events, CPU time, signals. Never by guessing.

Where a cgroup holds the cell, its counters are the truth for the whole tree of the call. Where none does, the
supervisor adds up the tree through psutil and /proc now and then; each process is then capped by its rlimits, the
tree by this watch.
"""

import contextlib
import signal
from dataclasses import dataclass

import psutil

from toolcell_sandbox.limits import Limits
from toolcell_sandbox.mechanisms.cgroups import Cgroup

REFUSED_FORKS = 64
"""So many refused forks in one call are a fork bomb, not a program that copes with EAGAIN."""


@dataclass(slots=True)
class TreeUsage:
    """What the processes of a call use together."""

    tasks: int = 0  # processes and threads
    memory_bytes: int = 0
    cpu_s: float = 0.0


class Evidence:
    """The counters of one cell. `since_last` figures start anew with each call."""

    __slots__ = ("_baseline_bytes", "_cgroup", "_cpu_at_start", "_init_pid", "_oom_kills", "_refused")

    def __init__(self, cgroup: Cgroup | None) -> None:
        self._cgroup = cgroup
        self._init_pid = 0
        self._baseline_bytes = 0
        self._cpu_at_start: float | None = None
        self._oom_kills = cgroup.oom_kills() if cgroup else 0
        self._refused = cgroup.pids_refused() if cgroup else 0

    def new_cell(self, init_pid: int) -> None:
        self._init_pid = init_pid

    def new_call(self) -> None:
        """A call starts; read lazily, so that a short call pays for nothing."""
        self._cpu_at_start = None

    def settle(self) -> None:
        """A call ended well: what it did is not held against the next one."""
        if self._cgroup is not None:
            self._oom_kills = self._cgroup.oom_kills()
            self._refused = self._cgroup.pids_refused()

    def oom_killed(self) -> bool:
        """Whether the kernel killed for memory since the last look."""
        if self._cgroup is None:
            return False
        before, self._oom_kills = self._oom_kills, self._cgroup.oom_kills()
        return self._oom_kills > before

    def forks_refused(self) -> int:
        """How many forks and threads the kernel refused since the last settled call."""
        return self._cgroup.pids_refused() - self._refused if self._cgroup is not None else 0

    def exceeded(self, limits: Limits) -> str:
        """The resource that a running call has exceeded by now, or ""."""
        if self.oom_killed():
            return "memory"
        if self.forks_refused() >= REFUSED_FORKS:
            return "processes"
        if self._cgroup is not None:
            cpu_s = self._cgroup.cpu_s()
            if cpu_s is not None:
                if self._cpu_at_start is None:
                    self._cpu_at_start = cpu_s
                if cpu_s - self._cpu_at_start > limits.cpu_s:
                    return "cpu"
            return ""
        usage = self.tree_usage()
        if usage.tasks > limits.processes:  # the rlimit lets one or two more through, for the cell's own
            return "processes"
        if usage.memory_bytes > limits.memory_bytes:
            return "memory"
        return "cpu" if usage.cpu_s > limits.cpu_s else ""

    def tree_usage(self) -> TreeUsage:
        """Add up the call's processes: private memory, the largest shared segment, CPU time."""
        usage = TreeUsage()
        if not self._init_pid:
            return usage
        with contextlib.suppress(psutil.NoSuchProcess):
            init = psutil.Process(self._init_pid)
            inherited, _ = _memory(self._init_pid)  # what every fork of the init shares with it, by copy on write
            shared = 0
            for process in init.children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                    times = process.cpu_times()
                    private, segment = _memory(process.pid)
                    usage.tasks += process.num_threads()
                    usage.memory_bytes += max(0, private - inherited)
                    usage.cpu_s += times.user + times.system + times.children_user + times.children_system
                    shared = max(shared, segment)
            usage.memory_bytes += shared
        return usage


def _memory(pid: int) -> tuple[int, int]:
    """RssAnon and RssShmem of a process in bytes (proc_pid_status(5))."""
    found = {b"RssAnon": 0, b"RssShmem": 0}
    with open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            name, _, value = line.partition(b":")
            if name in found:
                found[name] = int(value.split()[0]) * 1024
    return found[b"RssAnon"], found[b"RssShmem"]


def limit_of_exit(code: int, cpu_s: float, limits: Limits) -> str:
    """The limit that an exit code (minus the signal, as subprocess has it) and the CPU time tell of, or ""."""
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and cpu_s >= limits.cpu_s):
        return "cpu"
    if code == -signal.SIGXFSZ:
        return "file_size"
    return ""
