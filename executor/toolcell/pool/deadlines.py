"""One heap for every deadline of the supervisor: which actions are due, in order, and when the next one is.

A `Deadline` is a moment of the clock. A `Patience` is for silence: time in which the event loop was held, by a blocking
call, a debugger or SIGSTOP, does not count, because nothing could be heard in it.
"""

import heapq
import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Final


class Deadline:
    """A moment (time.monotonic seconds) and the action that is due then."""

    __slots__ = ("action", "when")

    def __init__(self, when: float, action: Callable[[], None] | None) -> None:
        self.when = when
        self.action = action


class Deadlines:
    """The heap. It has no clock and no event loop. It calls `ring_at(when)` to be told when that moment has come, and
    again if an earlier deadline is added. The owner then calls `pop_due`, runs the actions, and calls `ring_again`."""

    def __init__(self, ring_at: Callable[[float], None]) -> None:
        self._ring_at = ring_at
        self._rings_at = math.inf
        self._heap: list[tuple[float, int, Deadline]] = []  # by time, then by order of creation
        self._orders = itertools.count()
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def at(self, when: float, action: Callable[[], None]) -> Deadline:
        deadline = Deadline(when, action)
        heapq.heappush(self._heap, (when, next(self._orders), deadline))
        if when < self._rings_at:
            self._rings_at = when
            self._ring_at(when)
        return deadline

    def redirect(self, deadline: Deadline, action: Callable[[], None]) -> bool:
        """Replace the action of a deadline. Returns False if the deadline is over or cancelled."""
        if deadline.action is None:
            return False
        deadline.action = action
        return True

    def cancel(self, deadline: Deadline) -> None:
        """Forget a deadline. Most deadlines are cancelled, so their entries leave the heap in bulk, not one by one."""
        if deadline.action is None:
            return
        deadline.action = None
        self._cancelled += 1
        if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].action is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def next_due(self) -> float:
        """When the next deadline that is not cancelled is due; math.inf if there is none."""
        heap = self._heap
        while heap and heap[0][2].action is None:
            heapq.heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else math.inf

    def pop_due(self, now: float) -> Iterator[Callable[[], None]]:
        """Remove and yield the actions that are due by `now`, earliest first. An action may cancel later ones.
        `ring_at` is not called until `ring_again`."""
        self._rings_at = -math.inf
        while self.next_due() <= now:
            deadline = heapq.heappop(self._heap)[2]
            if deadline.action is not None:
                action, deadline.action = deadline.action, None  # so that a late cancel() of it is not counted
                yield action

    def ring_again(self) -> None:
        """Call `ring_at` for the next deadline, including those that the due actions have added."""
        self._rings_at = self.next_due()
        if self._rings_at != math.inf:
            self._ring_at(self._rings_at)


STEPS: Final = 4
LATE_S: Final = 0.5  # a busy loop may be this late, also where a step is shorter


class Patience:
    """Calls `judge` after `seconds` of silence, counted in steps. A step does not count if it ends late by more than
    its own length and `LATE_S`: the loop was held. `judge` must read what has arrived before it ends anything, because
    the loop may handle this alarm before the message."""

    __slots__ = ("_deadline", "_deadlines", "_due", "_judge", "_left", "_step_s")

    def __init__(self, deadlines: Deadlines, seconds: float, judge: Callable[[], None]) -> None:
        self._deadlines = deadlines
        self._step_s = seconds / STEPS
        self._judge = judge
        self._left = STEPS
        self._begin_step()

    def renew(self) -> None:
        """Begin to count again, because something was heard."""
        self._left = STEPS

    def cancel(self) -> None:
        self._deadlines.cancel(self._deadline)

    def _begin_step(self) -> None:
        self._due = time.monotonic() + self._step_s
        self._deadline = self._deadlines.at(self._due, self._end_step)

    def _end_step(self) -> None:
        self._left -= time.monotonic() - self._due <= max(self._step_s, LATE_S)
        if self._left > 0:
            self._begin_step()
        else:
            self._judge()
