"""Measure a cell's call: find its process, count what the process and its tree use, and find what they leave behind."""

import os
import signal
import time

from toolcell.pool.processes import first_child, open_children
from toolcell.pool.reactor import release
from toolcell.pool.run import Run
from toolcell.wire.messages import Exited
from toolcell_sandbox.limits import Limits
from toolcell_sandbox.mechanisms.cgroups import Cgroup

from .evidence import Evidence

COUNTED_AHEAD_BYTES = 1024 * 1024  # the kernel charges a cgroup 64 pages at a time per CPU (MEMCG_CHARGE_BATCH)
_PIDFD_SIGNAL_PROCESS_GROUP = 4  # linux/pidfd.h
_CPUCLOCK_SCHED = 2  # the clock id of a process is (~pid << 3) | CPUCLOCK_SCHED (linux/posix-timers.h)


class Meter:
    """Measures the calls of one cell. `process` is the call process's pid on the host, 0 if it is unknown."""

    __slots__ = (
        "_asks_clock",
        "_at_rest",
        "_cgroup",
        "_children_fd",
        "_cpu_before",
        "_kept",
        "_rss_before",
        "_standby",
        "_status_fd",
        "evidence",
        "process",
        "reads_clock",
    )

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
