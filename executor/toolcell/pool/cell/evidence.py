"""Which limit a call hit, by what the kernel counted: cgroup events, CPU time, signals. Never by guessing.

Where a cgroup holds the cell, its counters are the truth for the whole tree of the call. Where none does, the
supervisor adds up the tree through psutil and /proc now and then; each process is then capped by its rlimits, the
tree by this watch.
"""

import logging
import math
import signal
import time

from toolcell.pool.processes import TreeUsage, reaped_cpu_s, shared_memory_of_the_machine, tree_usage
from toolcell_sandbox.limits import Limits
from toolcell_sandbox.mechanisms.cgroups import Cgroup

_log = logging.getLogger("toolcell.pool")
SHORT_CALL_S = 0.02
"""Below this, no counter of the whole tree is looked for: a call cannot have done much."""
REFUSED_FORKS = 64
"""So many refused forks in one call are a fork bomb, not a program that copes with EAGAIN."""
AHEAD_CPU_S = 0.02
"""What the fork of the next call process and its warm-up may take, which count with the call that runs meanwhile."""


class Evidence:
    """The counters of one cell. What they say is of the call that runs; each begins anew with `new_call`."""

    __slots__ = (
        "_ahead",
        "_cgroup",
        "_cpu_at_start",
        "_cpu_of_dead",
        "_init_pid",
        "_kept",
        "_limits",
        "_most",
        "_oom_kills",
        "_peak",
        "_peak_at_start",
        "_refused",
        "_shared_before",
    )

    def __init__(self, cgroup: Cgroup | None, limits: Limits, *, kept: bool) -> None:
        self._cgroup = cgroup
        self._limits = limits
        self._kept = kept
        self._init_pid = 0
        self._ahead = 0  # processes that were forked ahead, beside the call that runs
        self._most = TreeUsage()  # seen in this call
        self._cpu_at_start: float | None = 0.0
        self._cpu_of_dead = 0.0  # what processes of earlier calls have used
        self._peak = self._peak_at_start = 0
        self._shared_before = 0  # of the machine, when the call's process had none
        self._oom_kills = cgroup.oom_kills() if cgroup else 0
        self._refused = cgroup.pids_refused() if cgroup else 0

    @property
    def counts_cpu(self) -> bool:
        """Whether the kernel counts the processor time of the whole tree."""
        return self._cgroup is not None and self._cgroup.cpu_s() is not None

    def new_cell(self, init_pid: int) -> None:
        self._init_pid = init_pid

    def new_call(self) -> None:
        """A call starts. It waits for this: a read of a file of the cgroup that is open."""
        most, cgroup = self._most, self._cgroup
        most.cpu_s, most.memory_bytes, most.tasks = 0.0, 0, 0
        if cgroup is not None:
            self._cpu_at_start = cgroup.cpu_s()
            if self._kept:  # else it was when the process before was gone
                self._forget_peak(cgroup)
        else:
            self._cpu_at_start = None if self._kept else self._cpu_of_dead  # a new process has used nothing
            if not self._kept:
                self._shared_before = shared_memory_of_the_machine()

    def forked_ahead(self) -> None:
        """The next call process is made ready while this call runs: it is not held against it."""
        self._ahead = 1

    def new_process(self) -> None:
        """A call process waits, or will be forked for its call, and no other is there."""
        self._ahead = 0
        if self._cgroup is None and self._kept:
            self._shared_before = shared_memory_of_the_machine()
        self.settle()

    def settle(self) -> None:
        """A call is over and its processes are gone: what they did is not held against the next one."""
        if self._cgroup is not None:
            self._oom_kills = self._cgroup.oom_kills()
            self._refused = self._cgroup.pids_refused()
            self._forget_peak(self._cgroup)
        else:
            self._cpu_of_dead = reaped_cpu_s(self._init_pid)

    def _forget_peak(self, cgroup: Cgroup) -> None:
        self._peak_at_start = 0 if cgroup.reset_peak() else cgroup.memory_peak() or 0

    def oom_killed(self) -> bool:
        """Whether the kernel killed for memory since the last look."""
        if self._cgroup is None:
            return False
        before, self._oom_kills = self._oom_kills, self._cgroup.oom_kills()
        return self._oom_kills > before

    def oom_killed_behind_an_answer(self) -> bool:
        """`oom_killed`, for a call that has just been accounted for. Nearly all are spared the look: what never came
        near the limit was not killed for it.
        """
        return self._peak * 2 > self._limits.memory_bytes and self.oom_killed()

    def forks_refused(self) -> int:
        """How many forks and threads the kernel refused since the last settled call."""
        return self._cgroup.pids_refused() - self._refused if self._cgroup is not None else 0

    def exceeded(self) -> str:
        """The resource that a running call has exceeded by now, or ""."""
        if self.oom_killed():
            return "memory"
        if self.forks_refused() >= REFUSED_FORKS:
            return "processes"
        self._look()
        limits = self._limits
        if self._cgroup is None:
            if self._most.tasks > limits.processes:  # the rlimit lets one or two more through, for the cell's own
                return "processes"
            if self._most.memory_bytes > limits.memory_bytes:
                return "memory"
        return "cpu" if self._most.cpu_s > limits.cpu_s + self._ahead * AHEAD_CPU_S else ""

    def account(self, started_at: float) -> TreeUsage:
        """The most that the whole tree of the call has used, asked for while its processes are there.

        Where no cgroup counts, the processes are added up, but not those of a short call (`started_at` says when it
        began, in time.monotonic seconds; math.inf for a call of which nothing is left): of that only the call process
        itself is known.
        """
        most, cgroup = self._most, self._cgroup
        if cgroup is None:
            if time.monotonic() - started_at >= SHORT_CALL_S:
                self._look()
            return most
        cpu_s, peak = cgroup.cpu_s(), cgroup.memory_peak()
        if cpu_s is not None and self._cpu_at_start is not None:
            most.cpu_s = cpu_s - self._cpu_at_start
        if peak is not None:
            self._peak = peak
            if peak > self._peak_at_start:  # one that an older kernel cannot reset is this call's only if it has grown
                most.memory_bytes = max(most.memory_bytes, peak)
        return most

    def memory_now(self) -> int:
        """Bytes that are in use now, by a call that has been accounted for; 0 where a group cannot say so."""
        cgroup = self._cgroup
        return cgroup.memory_peak() or 0 if cgroup is not None and cgroup.reset_peak() else 0

    def _look(self) -> None:
        most = self._most
        if self._cgroup is not None:
            most.tasks = max(most.tasks, self._cgroup.tasks() - 1 - self._ahead)  # without the init
            self.account(math.inf)
        elif self._init_pid:
            try:
                now = tree_usage(self._init_pid, self._limits.memory_bytes, self._shared_before)
            except OSError as error:  # such as EMFILE: what was seen before stands, and deadlines do not wait for it
                _log.warning("the processes of a call could not be added up: %s", error)
                return
            if self._cpu_at_start is None:  # a kept process: what it had used when this call was first looked at
                self._cpu_at_start = now.cpu_s
            most.tasks = max(most.tasks, now.tasks - self._ahead)
            most.memory_bytes = max(most.memory_bytes, now.memory_bytes)
            most.cpu_s = max(most.cpu_s, now.cpu_s - self._cpu_at_start)


def limit_of_exit(code: int, cpu_s: float, limits: Limits) -> str:
    """The limit that an exit code (minus the signal, as subprocess has it) and the CPU time tell of, or ""."""
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and cpu_s >= limits.cpu_s):
        return "cpu"
    if code == -signal.SIGXFSZ:
        return "file_size"
    return ""
