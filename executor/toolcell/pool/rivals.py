"""Know which sessions make calls. The running calls of a session together get about the CPU time of one call.

The kernel shares a busy core among processes, so a session with eight running calls would get eight times the CPU time
of a session with one. So while several sessions make calls, the cgroups of a session's cells have a smaller CPU weight:
together that of one process. The kernel does the rest. Without a cgroup, a session has no weight.
"""

import math
from typing import Final

RIVAL_S: Final = 1.0
"""How many seconds a session counts as a rival after its last call began, or was seen running."""


class Rivals:
    """The session that made the last call, and the times of its last call and of the last call of any other session.
    `seen` has the time of the last call of each session. `seen[last]` may be older than `last_at`, which holds."""

    __slots__ = ("last", "last_at", "other_at", "seen")

    def __init__(self) -> None:
        self.last = ""
        self.last_at = self.other_at = -math.inf
        self.seen: dict[str, float] = {}

    def note(self, session_id: str, now: float) -> None:
        """Note that the session begins a call, or has one under way."""
        now = max(now, self.last_at)  # a call that is made again has the time of the first one
        if session_id != self.last:
            if self.last in self.seen:  # else it was forgotten
                self.seen[self.last] = self.last_at
            self.last, self.other_at = session_id, self.last_at
            self.seen[session_id] = now
        elif session_id not in self.seen:
            self.seen[session_id] = now
        self.last_at = now

    def forget(self, session_id: str) -> None:
        """Forget a session that is closed or parked."""
        self.seen.pop(session_id, None)

    def forget_before(self, when: float) -> bool:
        """Forget the sessions that made their last call before `when`. Returns whether there were any."""
        gone = [session_id for session_id, at in self.seen.items() if at < when and session_id != self.last]
        for session_id in gone:
            del self.seen[session_id]
        return bool(gone)

    def has(self, session_id: str, now: float) -> bool:
        """Whether another session has calls."""
        return now - (self.other_at if session_id == self.last else self.last_at) < RIVAL_S


def next_power_of_2(calls: int) -> int:
    """Round `calls` up to a power of two, so that weights change less often."""
    return 1 << (calls - 1).bit_length()
