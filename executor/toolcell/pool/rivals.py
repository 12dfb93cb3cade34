"""Share the cores among sessions: the running calls of a session together get about the CPU time of one call.

The kernel shares a busy core among processes, so a session with eight running calls would get eight times the CPU time
of a session with one, and the supervisor would wait for its turn behind all of them. So while several sessions make
calls, a session's second and later running calls are niced, each by so much that their weights add up to one call's.
On idle cores, a niced process runs as fast as any other.
"""

import math
import os
from contextlib import suppress
from typing import Final

RIVAL_S: Final = 1.0
"""How many seconds a session counts as a rival after its last call began, or was seen running."""
NICE_STEP: Final = 1.25  # a step of nice changes the share of a core by this factor (sched(7))
MOST_NICE: Final = 12  # less than 19, so that other programs of the host cannot take every core from a session's calls


class Rivals:
    """The session that made the last call, and the times of its last call and of the last call of any other session."""

    __slots__ = ("last", "last_at", "other_at")

    def __init__(self) -> None:
        self.last = ""
        self.last_at = self.other_at = -math.inf

    def note(self, session_id: str, now: float) -> None:
        """Note that the session begins a call, or has one under way."""
        if session_id != self.last:
            self.last, self.other_at = session_id, self.last_at
        self.last_at = now

    def has(self, session_id: str, now: float) -> bool:
        """Whether another session has calls."""
        return now - (self.other_at if session_id == self.last else self.last_at) < RIVAL_S


def nice_of(running: int) -> int:
    """The nice value with which `running` calls together get about the CPU time of one call."""
    return min(MOST_NICE, round(math.log(running, NICE_STEP))) if running > 1 else 0


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
            with suppress(PermissionError):
                os.setpriority(os.PRIO_PROCESS, pid, wanted)
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
