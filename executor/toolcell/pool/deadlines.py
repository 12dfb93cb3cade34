"""One heap for every deadline of the supervisor: what is due, in order, and when to look again."""

import heapq
import itertools
import math
from collections.abc import Callable, Iterator


class Deadline:
    """A moment (time.monotonic seconds) and what to do then."""

    __slots__ = ("action", "when")

    def __init__(self, when: float, action: Callable[[], None] | None) -> None:
        self.when = when
        self.action = action


class Deadlines:
    """The heap. It has no clock and no loop: `ring_at(when)` is called when something is due before what it was last
    called with, and whoever rings calls `pop_due`, and `ring_again` when what was due has been done."""

    def __init__(self, ring_at: Callable[[float], None]) -> None:
        self._ring_at = ring_at
        self._rings_at = math.inf
        self._heap: list[tuple[float, int, Deadline]] = []  # by time, then in the order of their making
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

    def cancel(self, deadline: Deadline) -> None:
        """Forget a deadline. Most are cancelled, so their entries leave the heap in bulk, not one by one."""
        if deadline.action is None:
            return
        deadline.action = None
        self._cancelled += 1
        if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].action is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def next_due(self) -> float:
        """When the next living deadline is due; math.inf where there is none."""
        heap = self._heap
        while heap and heap[0][2].action is None:
            heapq.heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else math.inf

    def pop_due(self, now: float) -> Iterator[Callable[[], None]]:
        """Take out what is due by `now`, earliest first, one after the other: not what the one before has cancelled.
        Until `ring_again`, `ring_at` is not called."""
        self._rings_at = -math.inf
        while self.next_due() <= now:
            deadline = heapq.heappop(self._heap)[2]
            if deadline.action is not None:
                action, deadline.action = deadline.action, None  # so that a late cancel() of it is not counted
                yield action

    def ring_again(self) -> None:
        """Ring for what is due next, that which was due has added among it."""
        self._rings_at = self.next_due()
        if self._rings_at != math.inf:
            self._ring_at(self._rings_at)
