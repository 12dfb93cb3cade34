"""Share the cores among sessions: the running calls of a session together get about the CPU time of one call.

The kernel shares a busy core among processes, so a session with eight running calls would get eight times the CPU time
of a session with one, and the supervisor would wait for its turn behind all of them. So while several sessions make
calls, the cells of a session with more than one running call get a smaller CPU weight: together that of one process.
A smaller weight alone is not enough: a process that wakes up may have to wait for the kernel's next tick before it
gets a core from one that computes. So a session that uses much more CPU time than another one yields (`CoreUse`): it
leaves one core alone. Without a cpuset, its cgroups are SCHED_IDLE instead: other processes preempt them, mostly at
once.

The weight is that of the cell's cgroup. Without a cgroup that has one, the processes of the call and the cell's init
are niced instead, as far as the user may, and have long slices (`SLICE_NS`).
"""

import math
import os
import struct
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Final

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.syscalls import attempt
from toolcell_sandbox.mechanisms.capabilities import held

RIVAL_S: Final = 1.0
"""How many seconds a session counts as a rival after its last call began, or was seen running."""
YIELD_RATIO: Final = 2.0  # times the CPU time of another session
LEAST_CORES: Final = 0.25  # of a core
STOP_CORES: Final = LEAST_CORES / 4  # for an idle kept process that yields: it uses less for that reason alone
STOP_S: Final = 0.015
"""A session that leaves one core alone stops when its decayed CPU time is below this many seconds, that of 6 % of a
core. It may use nothing between two looks, because it waits for a core that it shares with others."""
DECAY_S: Final = 0.22  # of what was used before, 1/e is left after this time, and half after 0.15 s
NICE_STEP: Final = 1.25  # a step of nice changes the share of a core by this factor (sched(7))
_CAP_SYS_NICE: Final = 23  # linux/capability.h
MOST_NICE: Final = 15  # less than 19, so that other programs of the host cannot take every core from a session's calls
SLICE_NS: Final = 100_000_000
"""The slice of a niced process, the longest that the kernel takes. Since Linux 6.12, a process that wakes up need not
wait until the slice of the running one is over if its own is shorter (PREEMPT_SHORT in kernel/sched/fair.c)."""
_SCHED_ATTR: Final = struct.Struct("=IIQiIQQQ")  # linux/sched/types.h
_SCHED_FLAG_KEEP_POLICY: Final = 8  # linux/sched.h


class Rivals:
    """The session that made the last call, and the times of its last call and of the last call of any other session.
    `seen` has the time of the last call of each session. `seen[last]` may be older than `last_at`, which holds."""

    __slots__ = ("last", "last_at", "other_at", "seen")

    def __init__(self) -> None:
        self.last = ""
        self.last_at = self.other_at = -math.inf
        self.seen: dict[str, float] = {}

    def note(self, session_id: str, now: float) -> bool:
        """Note that the session begins a call, or has one under way. Returns whether it had none in the last `RIVAL_S`
        seconds."""
        before = self.last_at
        if now < before:  # a call that is made again has the time of the first one
            now = before
        if session_id != self.last:
            before = self.seen.get(session_id, -math.inf)
            if self.last in self.seen:  # else it was forgotten
                self.seen[self.last] = self.last_at
            self.last, self.other_at = session_id, self.last_at
            self.seen[session_id] = now
        elif session_id not in self.seen:
            self.seen[session_id] = now
        self.last_at = now
        return now - before >= RIVAL_S

    def forget(self, session_id: str) -> None:
        """Forget a session that is closed or parked."""
        self.seen.pop(session_id, None)

    def forget_before(self, when: float) -> bool:
        """Forget the sessions that made their last call before `when`. Returns whether there were any."""
        gone = [session_id for session_id, at in self.seen.items() if at < when and session_id != self.last]
        for session_id in gone:
            del self.seen[session_id]
        return bool(gone)

    def callers(self, now: float) -> set[str]:
        """The sessions that began a call, or had one under way, in the last `RIVAL_S` seconds."""
        found = {session_id for session_id, at in self.seen.items() if now - at < RIVAL_S}
        if self.last in self.seen and now - self.last_at < RIVAL_S:
            found.add(self.last)
        return found

    def has(self, session_id: str, now: float) -> bool:
        """Whether another session has calls."""
        return now - (self.other_at if session_id == self.last else self.last_at) < RIVAL_S


class CoreUse:
    """The CPU time that sessions use. `yielding` are those whose calls leave the cores to others first.

    A session begins to yield if it used more than twice the time of another session that has calls, of late, and more
    than a quarter of a core since the last look.

    With `keep_weights`, groups that yield keep their weights, and leave a core alone. They use less for that reason
    alone. So such a session yields until it has used less than the session that used least, or next to nothing
    (`STOP_S`).

    Without `keep_weights`, a session yields as long as it would begin to. One that gets no core has used little at the
    next look, and has its share again. The kernel gives all groups that yield the same weight, whatever the number of
    calls. So among the sessions that would yield, only those do that used more than twice the least of their times, if
    there are any.
    """

    def __init__(self) -> None:
        self.keep_weights = False
        self.yielding: frozenset[str] = frozenset()
        self._of_late: dict[str, float] = {}  # seconds, decayed
        self._before: dict[int, float] = {}
        self._of_ended: dict[str, float] = {}  # seconds since the last look, of cells that have ended
        self._computing: set[str] = set()  # those that used more than `LEAST_CORES` between the last two looks
        self._looked_at = -math.inf

    def may_change(self, now: float) -> bool:
        """Whether `compare` may find a session that does not yield yet, or forget one."""
        return self._is_old(now) or not self._computing <= self.yielding

    def begin(self, id: int, cpu_s: float) -> None:
        """Note a session's new cell, and the CPU seconds of earlier cells with its counter."""
        self._before[id] = cpu_s

    def end(self, id: int, session_id: str, cpu_s: float) -> None:
        """Add the CPU time of a cell that has ended to its session's. Otherwise a session with short-lived cells would
        seem to use nothing."""
        used = max(0.0, cpu_s - self._before.pop(id, cpu_s))  # it reads as 0 if another program has removed the group
        self._of_ended[session_id] = self._of_ended.get(session_id, 0.0) + used

    def look(self, callers: Collection[str], cells: Iterable[tuple[int, str, float]], now: float) -> None:
        """Read what the sessions in `callers` have used since the last look, and compare. `cells` are their cells: an
        id, the session, and the CPU seconds so far."""
        self._forget_if_old(now)
        elapsed, self._looked_at = now - self._looked_at, now
        used, read = {each: self._of_ended.get(each, 0.0) for each in callers}, dict[int, float]()
        self._of_ended.clear()
        for id, session_id, cpu_s in cells:
            used[session_id] += max(0.0, cpu_s - self._before.get(id, cpu_s))
            read[id] = cpu_s
        self._before = read
        left = math.exp(-elapsed / DECAY_S)
        self._of_late = {each: left * self._of_late.get(each, 0.0) + cpu_s for each, cpu_s in used.items()}
        self._computing = {each for each, cpu_s in used.items() if cpu_s > LEAST_CORES * elapsed}
        self.compare(callers, now)

    def compare(self, callers: Collection[str], now: float) -> None:
        """Compare what these sessions had used at the last look. One that had no calls then has used nothing."""
        self._forget_if_old(now)
        of_late = {each: self._of_late.get(each, 0.0) for each in callers}
        least = min(of_late.values(), default=0.0)
        ahead = _far_above(least, of_late) & self._computing
        if self.keep_weights:
            ahead |= {each for each in self.yielding if of_late.get(each, 0.0) > max(least, STOP_S)}
        else:
            least = min((of_late[each] for each in ahead), default=0.0)
            ahead = _far_above(least, of_late) & ahead or ahead
        self.yielding = frozenset(ahead)

    def _is_old(self, now: float) -> bool:
        return now - self._looked_at > RIVAL_S

    def _forget_if_old(self, now: float) -> None:
        """Forget what is known if the last look was long ago: what was used before a pause, or in it, does not
        count."""
        if self._is_old(now):
            for known in (self._before, self._of_late, self._of_ended, self._computing):
                known.clear()


def _far_above(least: float, of_late: Mapping[str, float]) -> set[str]:
    return {session_id for session_id, cpu_s in of_late.items() if cpu_s > YIELD_RATIO * least}


def next_power_of_2(calls: int) -> int:
    """Round `calls` up to a power of two, so that weights change less often."""
    return 1 << (calls - 1).bit_length()


def nice_of(running: int) -> int:
    """The nice value with which the processes of `running` calls and their inits have the weight of one process."""
    return min(MOST_NICE, round(math.log(2 * running, NICE_STEP))) if running > 1 else 0


@cache
def may_undo() -> bool:
    """Whether this process may lower a nice value again: with CAP_SYS_NICE in the first user namespace (setpriority(2),
    user_namespaces(7))."""
    try:
        with open("/proc/self/uid_map") as file:
            is_first = file.read().split() == ["0", "0", "4294967295"]
        return is_first and bool(held()[0] >> _CAP_SYS_NICE & 1)
    except (OSError, SandboxError):
        return False


def set_slice(pid: int, *, long: bool) -> None:
    """Give a process a long slice (`SLICE_NS`), or the default one, as far as this user may. Raises OSError if the
    process has ended."""
    nice, slice_ns = os.getpriority(os.PRIO_PROCESS, pid), SLICE_NS if long else 0
    attributes = _SCHED_ATTR.pack(_SCHED_ATTR.size, 0, _SCHED_FLAG_KEEP_POLICY, nice, 0, slice_ns, 0, 0)
    attempt("sched_setattr", pid, attributes, 0)  # without it, the process has its share, and others wait a little


def _schedule(pid: int, nice: int) -> None:
    """Set the nice value of a process, as far as this user may, and its slice: a long one with a value above ours,
    otherwise the default. Raises OSError if the process has ended."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, pid, max(nice, own))
    set_slice(pid, long=nice > own)


def renice(pid: int, nice: int) -> bool:
    """Set the nice value and the slice of a cell's init, which its later children inherit, if this process may undo
    that. Returns whether they were set."""
    if not may_undo():
        return False
    try:
        _schedule(pid, nice)
    except OSError:  # it has ended
        return False
    return True


def take_back(pid: int, nice: int) -> None:
    """Undo a nice value that a process has inherited, unless it has another one now."""
    with suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, pid) == nice:
            _schedule(pid, 0)


def lower(pid: int, nice: int, before: int = 0) -> bool:
    """Nice a call process, and its scheduling group: with autogroups (sched(7)), the value of the process counts only
    within its group. `before` is the value that it was given before: a smaller `nice` takes that back, as far as this
    user may. Returns False if that must be tried again, because the process is not in a group of its own yet, or the
    kernel changes no group now.

    An ordinary user may not nice another user's process. Then the process keeps its weight. Nor may that user lower the
    value of a process again, only that of its group.
    """
    try:
        if os.getsid(pid) != pid:
            return False
        now, wanted = os.getpriority(os.PRIO_PROCESS, pid), max(nice, os.getpriority(os.PRIO_PROCESS, 0))
        if now < wanted or now == before > wanted:  # else the program has niced itself
            _schedule(pid, wanted)
    except OSError:  # also if the process has ended
        return True
    return share_of_group(pid, nice)


def share_of_group(pid: int, nice: int) -> bool:
    """Set the nice value of the scheduling group that a process leads, if the kernel has autogroups and lets this user.
    Returns False if that must be tried again: an ordinary user may change a group only ten times a second."""
    try:
        if os.getsid(pid) == pid:
            with open(f"/proc/{pid}/autogroup", "r+b", buffering=0) as group:
                group.write(b"%d" % nice)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
