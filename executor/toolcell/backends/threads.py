"""Blocking work of a backend, in worker threads of its own so that it cannot use up everybody's."""

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

__all__ = ["Threads"]

T = TypeVar("T")


class Threads:
    """At most `total` worker threads at a time in each event loop; callers over that wait their turn."""

    def __init__(self, total: int) -> None:
        self._total = total
        # A limiter belongs to one event loop; a backend may be shared by two (`toolcell.blocking`, a test).
        self._limiter: RunVar[CapacityLimiter] = RunVar("toolcell.backends.threads")

    async def run(self, work: Callable[[], T], *, abandon: bool = False) -> T:
        """Return `work()`. With `abandon`, a cancelled caller does not wait for it; without, it finishes first."""
        try:
            limiter = self._limiter.get()
        except LookupError:
            limiter = CapacityLimiter(self._total)
            self._limiter.set(limiter)
        return await to_thread.run_sync(work, abandon_on_cancel=abandon, limiter=limiter)
