"""A trick for kept processes: while an answer is about to arrive, the event loop polls instead of sleeping.

A process that sleeps for some microseconds pays more for falling asleep and waking up than for the wait, and its next
instructions run slowly, because they are no longer in the core's caches.
"""

import asyncio
import math
import os
import resource
import time
from typing import Final

from .switches import is_on

QUICK_S: Final = 0.0002
"""The longest that a loop is kept awake for one answer, in seconds. A kept process that does next to nothing answers in
a quarter of that. The loop stays awake only for a process that answered its last call within this time."""
IN_A_ROW_S: Final = 0.001
"""A loop is kept awake only for a call that begins within this time after the last one, in seconds."""
LOOK_S: Final = 0.05
MOST_SWITCHES: Final = 50.0
"""A core is contended if the loop's thread is preempted more often than so many times in a second, counted every
`LOOK_S`. Then the loop sleeps. Polling would take time from other programs, and the kernel favours threads that slept.
"""
IS_ON: Final = is_on("stay_awake")
_now = time.monotonic


class Awake:
    """Keeps an asyncio loop awake `until` a moment (time.monotonic seconds). The loop serves all else meanwhile: this
    only adds turns to it. With a single core nothing is done, because the answer has to come from that core."""

    __slots__ = ("_is_calm", "_is_turning", "_look_at", "_looked_at", "_loop", "_switches", "until")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.until = 0.0
        self._loop = loop
        self._is_turning = False
        self._is_calm = False
        self._look_at = self._looked_at = 0.0
        self._switches = 0
        if not IS_ON or len(os.sched_getaffinity(0)) == 1:
            self._look_at = math.inf

    def stay(self, until: float) -> None:
        """Keep the loop awake until then, unless other programs want the core. The waiter sets `until` to 0 when
        the answer arrives."""
        if until > self._look_at:
            self._look(until)
        if self._is_calm:
            self.until = until
            if not self._is_turning:
                self._is_turning = True
                self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turning = _now() < self.until
        if self._is_turning:
            self._loop.call_soon(self._turn)

    def _look(self, now: float) -> None:
        """Look how often the kernel has taken the core from this thread since the last look (getrusage(2))."""
        switches = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
        self._is_calm = switches - self._switches <= MOST_SWITCHES * (now - self._looked_at)
        self._switches, self._looked_at, self._look_at = switches, now, now + LOOK_S
