"""Meter a cell's call: which process is the call's, what it and its tree are counted for, and what is left of it."""

import os
import signal
import time

from toolcell.pool.processes import first_child, open_children
from toolcell.pool.run import Run
from toolcell.wire.messages import Exited
from toolcell_sandbox.limits import Limits
from toolcell_sandbox.mechanisms.cgroups import Cgroup

from .evidence import Evidence

COUNTED_AHEAD_BYTES = 1024 * 1024  # a group's memory is counted by 64 pages for each processor (MEMCG_CHARGE_BATCH)
_PIDFD_SIGNAL_PROCESS_GROUP = 4  # linux/pidfd.h
_CPUCLOCK_SCHED = 2  # the clock id of a process is (~pid << 3) | CPUCLOCK_SCHED (linux/posix-timers.h)


class Meter:
    """Of one cell. `process` is the call process's pid on the host, 0 where it is not known."""

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

    def __init__(self, cgroup: Cgroup | None, limits: Limits, *, kept: bool, standby: bool) -> None:
        self.evidence = Evidence(cgroup, limits, kept=kept)
        self.process = 0
        self._cgroup = cgroup
        self._kept = kept
        self._standby = standby
        self._children_fd = -1  # of the list of the init's children
        self._status_fd = -1  # of the call process
        self._cpu_before = 0.0
        self._at_rest = self._rss_before = 0  # of a kept process: memory of its group (0: unknown), its peak when read
        # A kept process's clock says no more than the counter of its tree: the kernel moves both at one time.
        self._asks_clock = not (kept and self.evidence.counts_cpu)
        self.reads_clock = kept and self._asks_clock  # before each call

    def new_cell(self, init_pid: int) -> None:
        """The init is there."""
        try:
            self._children_fd = open_children(init_pid)
        except OSError:
            pass  # it has ended already, which its pidfd says; or descriptors have run out
        self.evidence.new_cell(init_pid)

    def close(self) -> None:
        self.forget_process()
        if self._children_fd >= 0:
            os.close(self._children_fd)
            self._children_fd = -1

    # -- the call process ---------------------------------------------------------------------------------------------

    def find_process(self) -> None:
        """Find the call process's pid on the host, and open its status while it surely lives."""
        self.forget_process()
        self._at_rest = 0
        if self._children_fd < 0:
            return
        try:
            self.process = first_child(self._children_fd)
            if self.process:
                self._status_fd = os.open(f"/proc/{self.process}/status", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # it is gone already, which Exited will say; or descriptors have run out, and Exited has it too
            self.process = 0

    def forget_process(self) -> None:
        self.process = 0
        if self._status_fd >= 0:
            os.close(self._status_fd)
            self._status_fd = -1

    def kill_process(self) -> None:
        """Kill the call process and its group, without the time that the init takes to wake up. The rest is the init's,
        and so is all of it where the process leads no group yet, or Linux is older than 6.9."""
        if self._status_fd < 0:
            return
        try:
            pidfd = os.pidfd_open(self.process)
        except OSError:
            return
        try:
            os.pread(self._status_fd, 1, 0)  # it is not reaped, so that the number was its own
            signal.pidfd_send_signal(pidfd, signal.SIGKILL, None, _PIDFD_SIGNAL_PROCESS_GROUP)
        except OSError:
            pass
        finally:
            os.close(pidfd)

    def left_behind(self, own: int) -> bool:
        """Whether more processes than the cell's `own` are there after a sweep, by the count of its cgroup.

        The sweep ends all of a pid namespace; a cell that was allowed to have none cannot see a daemon of its call.
        """
        return self._cgroup is not None and self._cgroup.tasks() > own and len(self._cgroup.processes()) > own

    # -- what a call uses ---------------------------------------------------------------------------------------------

    def read_clock(self) -> None:
        """A call is about to be sent to a process that has had others."""
        self._cpu_before = self._cpu_clock()

    def measure(self, run: Run, *, find: bool = True) -> None:
        """Fill in what the call used by the kernel's count, as long as its processes are there to be asked. `find` says
        whether the call process may have to be looked for."""
        if find and not self._standby:  # it was forked for this call, and is looked for only now
            self.find_process()
        tree = self.evidence.account(run.started_at)
        used = run.used
        used["memory_bytes"], used["processes"] = tree.memory_bytes, tree.tasks
        used["cpu_s"] = max(tree.cpu_s, used["cpu_s"])
        if self._asks_clock:
            used["cpu_s"] = max(used["cpu_s"], self._cpu_clock() - self._cpu_before)
        if self._at_rest and 0 < tree.memory_bytes <= self._at_rest + COUNTED_AHEAD_BYTES:
            used["max_rss_bytes"] = self._rss_before  # no process of the group has taken more than it had
        elif self._status_fd >= 0:
            try:
                status = os.pread(self._status_fd, 4096, 0)
            except ProcessLookupError:
                return
            start = status.find(b"\nVmHWM:")  # the first line has the name that the process gave itself
            if start >= 0:
                used["max_rss_bytes"] = int(status[start + 7 : status.index(b"kB", start)]) * 1024
                self._rss_before = used["max_rss_bytes"]
                if self._kept:
                    self._at_rest = self.evidence.memory_now()

    def account_exit(self, run: Run, exited: Exited) -> None:
        """Fill in what the call used, whose process is gone: what its tree was counted for, and the init's account."""
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
            return 0.0  # reaped already; Exited has the figure
