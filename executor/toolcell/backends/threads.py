"""Run blocking work in worker threads, and report an exhausted thread limit as `NoThread`."""

from collections.abc import Callable
from itertools import count
from typing import Final, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from toolcell.backends.protocols import Unreachable
from toolcell.wire import forks
from toolcell_tools.interrupts import Escaped

__all__ = [
    "APPROVERS",
    "FILES",
    "HOOKS",
    "LOOKS",
    "NO_THREAD_RETRY_S",
    "STREAMS",
    "SWEEPS",
    "NoThread",
    "Threads",
    "Turns",
    "in_thread",
]

T = TypeVar("T")
_numbers = count()
NO_THREAD_RETRY_S: Final = 1.0
"""Seconds after which to retry. By then, threads of other calls have probably ended."""


class NoThread(Unreachable):
    """No thread could be started: the user's or the container's limit on processes is reached. Nothing has run."""

    def __init__(self) -> None:
        super().__init__(
            "The machine has no thread left. Try again when fewer calls run, or raise the limit on processes "
            "(ulimit -u, or pids.max of the container)."
        )


async def in_thread(work: Callable[[], T], *, abandon: bool = False, limiter: CapacityLimiter | None = None) -> T:
    """Return `work()`, run in a worker thread. With `abandon`, a cancelled caller does not wait for it. Raises
    NoThread, what `work` raises, and UsageError on an event loop that a fork inherited, whose threads are not there.
    """
    forks.check_loop()
    began = False

    def run() -> T:
        nonlocal began
        began = True
        try:
            return work()
        except (SystemExit, GeneratorExit) as error:  # of the thread: neither the program nor a coroutine ends
            raise Escaped(error) from error

    try:
        return await to_thread.run_sync(run, abandon_on_cancel=abandon, limiter=limiter)
    except RuntimeError as error:  # "can't start new thread", of threading
        if began or "can't start new thread" not in str(error):
            raise
        raise NoThread from error


class Turns:
    """At most `total` callers at a time in each event loop; the others wait."""

    def __init__(self, total: int) -> None:
        self._total = total
        # A limiter belongs to one event loop; a backend may be shared by two (`toolcell.blocking`, a test).
        # The name is unique: before anyio 4.10, two variables with one name are the same.
        self._limiter: RunVar[CapacityLimiter] = RunVar(f"toolcell.backends.threads.{next(_numbers)}")

    def limiter(self) -> CapacityLimiter:
        """The limiter of the running event loop."""
        try:
            return self._limiter.get()
        except LookupError:
            limiter = CapacityLimiter(self._total)
            self._limiter.set(limiter)
            return limiter


class Threads:
    """At most `total` worker threads at a time in each event loop; other callers wait."""

    def __init__(self, total: int) -> None:
        self._turns = Turns(total)

    async def run(self, work: Callable[[], T], *, abandon: bool = False) -> T:
        """Return `work()`, as `in_thread` does. With `abandon`, a cancelled caller does not wait for it; without, the
        caller waits until it has finished.
        """
        return await in_thread(work, abandon=abandon, limiter=self._turns.limiter())


FILES: Final = Threads(16)
"""For work in workspaces. A file system that hangs holds none of the embedding program's threads."""
LOOKS: Final = Threads(8)
"""For looks at the files that calls have changed. A file system that hangs holds none of the other threads."""
HOOKS: Final = Threads(16)
"""For plain hooks. A hook that hangs holds none of the other threads."""
APPROVERS: Final = Threads(64)
"""For plain approvers, which wait for people. A call whose question waits for a thread can be answered in the store."""
STREAMS: Final = Threads(4)
"""For what calls print. A flood of output holds none of the other threads."""
SWEEPS: Final = Threads(2)
"""For background sweeps of workspaces, which may take minutes. No call waits for these threads."""
