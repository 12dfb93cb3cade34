"""Measure a cell's call: find its process, count what the process and its tree use, and find which limit it exceeded.

The evidence are the kernel's counters: cgroup events, CPU time, signals. No guesses. If the cell has a cgroup, its
counters are exact for the call's whole process tree. Otherwise the supervisor sums up the tree periodically, from
psutil and /proc. Rlimits then limit each process, and this watch limits the tree.
"""

import logging
import math
import os
import signal
import time
from collections.abc import Collection

from toolcell.pool.processes import (
    Machine,
    TreeUsage,
    descendants,
    first_child,
    holds_too_many_locks,
    open_children,
    reaped_cpu_s,
    shared_memory_of_the_machine,
    sockets_of,
    tree_usage,
)
from toolcell.pool.reactor import release
from toolcell.pool.run import Run
from toolcell.wire.messages import Exited
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.limits import Limits
from toolcell_sandbox.mechanisms.cgroups import Cgroup

_log = logging.getLogger("toolcell.pool")
SHORT_CALL_S = 0.02
"""For a call shorter than this, in seconds, the tree's counters are not read: it cannot have used much."""
REFUSED_FORKS = 64
"""So many refused forks in one call are a fork bomb. Fewer can be a program that handles EAGAIN."""
AHEAD_CPU_S = 0.02
"""CPU seconds for the fork and warm-up of the next call process. They are counted in the call that runs meanwhile."""
COUNTED_AHEAD_BYTES = 1024 * 1024  # the kernel charges a cgroup 64 pages at a time per CPU (MEMCG_CHARGE_BATCH)
_PIDFD_SIGNAL_PROCESS_GROUP = 4  # linux/pidfd.h
_CPUCLOCK_SCHED = 2  # the clock id of a process is (~pid << 3) | CPUCLOCK_SCHED (linux/posix-timers.h)


class Meter:
    """Measures the calls of one cell. `process` is the call process's pid on the host, 0 if it is unknown."""

    def __init__(self, cgroup: Cgroup | None, limits: Limits, *, kept: bool, standby: bool, network: bool) -> None:
        self.evidence = Evidence(cgroup, limits, kept=kept, network=network)
        self.process = 0
        self._cgroup = cgroup
        self._kept = kept
        self._standby = standby
        self._children_fd = -1  # of the list of the init's children
        self._status_fd = -1  # of the call process
        self._cpu_before = 0.0
        self._at_rest = self._rss_before = 0  # of a kept process: memory of its cgroup (0: unknown), its last peak
        # A kept process needs no clock of its own if its cgroup counts: the kernel updates both at the same time.
        self._asks_clock = not (kept and self.evidence.counts_cpu)
        self.reads_clock = kept and self._asks_clock  # before each call

    def new_cell(self, init_pid: int) -> None:
        """Start to measure a cell whose init has just started."""
        try:
            self._children_fd = open_children(init_pid)
        except OSError:
            pass  # the init has ended, which its pidfd reports, or no descriptor is left
        self.evidence.new_cell(init_pid)

    def close(self) -> None:
        self.forget_process()
        if self._children_fd >= 0:
            release(os.close, self._children_fd)
            self._children_fd = -1

    # -- the call process ---------------------------------------------------------------------------------------------

    def find_process(self) -> None:
        """Find the call process's pid on the host, and open its /proc status while it surely exists."""
        self.forget_process()
        self._at_rest = 0
        if self._children_fd < 0:
            return
        try:
            self.process = first_child(self._children_fd)
            if self.process:
                self._status_fd = os.open(f"/proc/{self.process}/status", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # the process has ended, or no descriptor is left; Exited will have the figures
            self.process = 0

    def forget_process(self) -> None:
        self.process = 0
        if self._status_fd >= 0:
            release(os.close, self._status_fd)
            self._status_fd = -1

    def kill_process(self) -> None:
        """Kill the call process and its group at once, without waiting for the init to wake up. The init kills the
        call's other processes. Before Linux 6.9 (pidfd_send_signal(2)), or if the process leads no group yet, the init
        kills all of the call's processes."""
        if self._status_fd < 0:
            return
        try:
            pidfd = os.pidfd_open(self.process)
        except OSError:
            return
        try:
            os.pread(self._status_fd, 1, 0)  # succeeds until the process is reaped, so the pid was its own
            signal.pidfd_send_signal(pidfd, signal.SIGKILL, None, _PIDFD_SIGNAL_PROCESS_GROUP)
        except OSError:
            pass
        finally:
            release(os.close, pidfd)

    def left_behind(self, own: int) -> bool:
        """Whether the cgroup holds more processes after a sweep than the cell's `own` ones.

        The sweep ends a whole pid namespace. A cell that was allowed to have none cannot see a daemon of its call.
        """
        return self._cgroup is not None and self._cgroup.tasks() > own and len(self._cgroup.processes()) > own

    # -- what a call uses ---------------------------------------------------------------------------------------------

    def read_clock(self) -> None:
        """Read the process's CPU clock before a call is sent to a process that has had others."""
        self._cpu_before = self._cpu_clock()

    def measure(self, run: Run, *, find: bool = True) -> None:
        """Fill in what the call used, by the kernel's counters, while its processes exist. `find` says whether the call
        process may have to be found first."""
        if find and not self._standby:  # the process was forked for this call and is found only now
            self.find_process()
        tree = self.evidence.account(run.started_at)
        used = run.used
        used["memory_bytes"], used["processes"] = tree.memory_bytes, tree.tasks
        if tree.cpu_s > used["cpu_s"]:
            used["cpu_s"] = tree.cpu_s
        if self._asks_clock:
            used["cpu_s"] = max(used["cpu_s"], self._cpu_clock() - self._cpu_before)
        if self._at_rest and 0 < tree.memory_bytes <= self._at_rest + COUNTED_AHEAD_BYTES:
            used["max_rss_bytes"] = self._rss_before  # no process in the cgroup can have a higher peak
        elif self._status_fd >= 0:
            try:
                status = os.pread(self._status_fd, 4096, 0)
            except OSError:  # mostly because it is reaped; Exited has the figure
                return
            start = status.find(b"\nVmHWM:")  # not in the first line, which has a name that the process can set
            if start >= 0:
                used["max_rss_bytes"] = int(status[start + 7 : status.index(b"kB", start)]) * 1024
                self._rss_before = used["max_rss_bytes"]
                if self._kept:
                    self._at_rest = self.evidence.memory_now()

    def account_exit(self, run: Run, exited: Exited) -> None:
        """Fill in what a call used whose process is gone: from the counters of its tree and the init's account."""
        self.measure(run, find=False)
        used = run.used
        if not self._kept or (self._asks_clock and used["cpu_s"] == 0.0):  # a kept one's account is of its whole life
            used["cpu_s"] = max(exited.cpu_s - self._cpu_before, used["cpu_s"])
        used["max_rss_bytes"] = max(exited.max_rss_bytes, used["max_rss_bytes"])

    def _cpu_clock(self) -> float:
        if not self.process:
            return 0.0
        try:
            return time.clock_gettime((~self.process << 3) | _CPUCLOCK_SCHED)
        except OSError:
            return 0.0  # already reaped; Exited has the figure


class Evidence:
    """The counters of one cell, for the running call. `new_call` resets them."""

    def __init__(self, cgroup: Cgroup | None, limits: Limits, *, kept: bool, network: bool = False) -> None:
        self._cgroup = cgroup
        self._limits = limits
        self._kept = kept
        self._network = network
        self._init_pid = 0
        self._ahead = 0  # processes that were forked ahead during the running call
        self._most = TreeUsage()  # the maxima seen in this call
        self._cpu_at_start: float | None = 0.0
        self._cpu_of_dead = 0.0  # CPU seconds of earlier calls' processes
        self._peak = self._peak_at_start = 0
        self._before = Machine()  # what is used, before the call's process has anything
        self._shares_network = False  # whether the cell is in the supervisor's network namespace
        self._oom_kills = cgroup.oom_kills() if cgroup else 0
        self._refused = cgroup.pids_refused() if cgroup else 0

    @property
    def counts_cpu(self) -> bool:
        """Whether the kernel counts the processor time of the whole tree."""
        return self._cgroup is not None and self._cgroup.cpu_s() is not None

    def new_cell(self, init_pid: int) -> None:
        self._init_pid = init_pid
        if self._cgroup is None:
            try:
                self._shares_network = sockets_of(init_pid).namespace == sockets_of(os.getpid()).namespace
            except OSError:
                pass  # the init has ended, which its pidfd reports, or no descriptor is left

    def new_call(self) -> None:
        """Reset the counters for a new call. The call waits for this, so it only reads an open file of the cgroup."""
        most, cgroup = self._most, self._cgroup
        most.cpu_s, most.memory_bytes, most.tasks = 0.0, 0, 0
        if cgroup is not None:
            self._cpu_at_start = cgroup.cpu_s()
            if self._kept:  # otherwise it was read when the process before was gone
                self._forget_peak(cgroup)
        else:
            self._cpu_at_start = None if self._kept else self._cpu_of_dead  # a new process has used nothing
            if not self._kept:
                self._look_around()

    def forked_ahead(self) -> None:
        """Exclude the next call process, which is prepared while this call runs, from the call's counts."""
        self._ahead = 1

    def new_process(self) -> None:
        """Take base values for the next call process, which waits as the cell's only one or is forked for its call."""
        self._ahead = 0
        if self._cgroup is None and self._kept:
            self._look_around()
        self.settle()

    def _look_around(self) -> None:
        mine = sockets_of(os.getpid()) if self._shares_network else Machine().sockets
        self._before = Machine(shared_memory_of_the_machine(), mine)

    def settle(self) -> None:
        """Take new base values after a call whose processes are gone, so that its use does not count for the next."""
        if self._cgroup is not None:
            self._oom_kills = self._cgroup.oom_kills()
            self._refused = self._cgroup.pids_refused()
            self._forget_peak(self._cgroup)
        else:
            self._cpu_of_dead = reaped_cpu_s(self._init_pid)

    def _forget_peak(self, cgroup: Cgroup) -> None:
        if self._network:
            cgroup.reset_socket_peak()
        self._peak_at_start = 0 if cgroup.reset_peak() else cgroup.memory_peak() or 0

    def oom_killed(self) -> bool:
        """Whether the OOM killer killed a process since the last look."""
        if self._cgroup is None:
            return False
        before, self._oom_kills = self._oom_kills, self._cgroup.oom_kills()
        return self._oom_kills > before

    def oom_killed_behind_an_answer(self) -> bool:
        """As `oom_killed`, for a call whose use was just measured. The counter is read only if the call came near its
        memory limit, because otherwise the OOM killer cannot have acted.
        """
        return self._peak * 2 > self._limits.memory_bytes and self.oom_killed()

    def forks_refused(self) -> int:
        """The number of forks and threads that the kernel refused since the last settled call."""
        return self._cgroup.pids_refused() - self._refused if self._cgroup is not None else 0

    def refused(self) -> str:
        """The resource that the kernel has refused to the running call: "memory", "processes" or ""."""
        if self.oom_killed():
            return "memory"
        return "processes" if self.forks_refused() else ""

    def exceeded(self) -> str:
        """The resource that the running call has exceeded, or ""."""
        if self.oom_killed():
            return "memory"
        if self.forks_refused() >= REFUSED_FORKS:
            return "processes"
        self._look()
        limits = self._limits
        if self._cgroup is None:
            if self._most.tasks > limits.processes:  # the rlimit is one or two higher, for the cell's own processes
                return "processes"
            if self._most.memory_bytes > limits.memory_bytes:
                return "memory"
        if self._holds_too_many_locks():
            return "locks"
        return "cpu" if self._most.cpu_s > limits.cpu_s + self._ahead * AHEAD_CPU_S else ""

    def exceeded_at_rest(self) -> str:
        """The resource that a kept process has exceeded while it has no call: "memory", "locks" or ""."""
        if self._cgroup is None:
            self._look()
            if self._most.memory_bytes > self._limits.memory_bytes:
                return "memory"
        return "locks" if self._holds_too_many_locks() else ""

    def _holds_too_many_locks(self) -> bool:
        """Whether the cell's processes hold more POSIX locks than a call may. No cgroup counts their memory."""
        try:
            return holds_too_many_locks(self._pids)
        except (OSError, SandboxError) as error:
            _log.warning("the locks of a call could not be counted: %s", error)
            return False

    def _pids(self) -> Collection[int]:
        return self._cgroup.processes() if self._cgroup is not None else descendants(self._init_pid)

    def account(self, started_at: float) -> TreeUsage:
        """The most that the call's whole process tree has used. Call this while its processes exist.

        Without a cgroup the processes are summed up, except for a short call, of which only the call process is known.
        `started_at` is the call's start in time.monotonic seconds, or math.inf if none of its processes is left.
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
            # Older kernels cannot reset the peak: it is this call's if it grew.
            if peak > self._peak_at_start and peak > most.memory_bytes:
                most.memory_bytes = peak
            if self._network and (sockets := cgroup.socket_peak()):
                most.memory_bytes = max(most.memory_bytes, peak + sockets)
        return most

    def memory_now(self) -> int:
        """Bytes that the measured call uses now; 0 if the cgroup cannot tell."""
        cgroup = self._cgroup
        return cgroup.memory_peak() or 0 if cgroup is not None and cgroup.reset_peak() else 0

    def _look(self) -> None:
        most = self._most
        if self._cgroup is not None:
            most.tasks = max(most.tasks, self._cgroup.tasks() - 1 - self._ahead)  # without the init
            self.account(math.inf)
        elif self._init_pid:
            try:
                now = tree_usage(self._init_pid, self._limits.memory_bytes, self._before)
            except OSError as error:  # such as EMFILE: earlier values stay, and deadlines still work
                _log.warning("the processes of a call could not be added up: %s", error)
                return
            if self._cpu_at_start is None:  # a kept process: its use when this call was first inspected
                self._cpu_at_start = now.cpu_s
            most.tasks = max(most.tasks, now.tasks - self._ahead)
            most.memory_bytes = max(most.memory_bytes, now.memory_bytes)
            most.cpu_s = max(most.cpu_s, now.cpu_s - self._cpu_at_start)


def limit_of_exit(code: int, cpu_s: float, limits: Limits) -> str:
    """The limit that an exit code (minus the signal, as in subprocess) and the CPU time show exceeded, or ""."""
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and cpu_s >= limits.cpu_s):
        return "cpu"
    if code == -signal.SIGXFSZ:
        return "file_size"
    return ""
