"""File work off the event loop."""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import anyio
from anyio.to_thread import run_sync

from toolcell_sandbox.errors import SandboxError

Given = TypeVarTuple("Given")
Result = TypeVar("Result")
MAX_THREADS = 16
"""Of one event loop, for all file work: a file system that hangs takes no thread of the embedding program's."""
_limiter: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar("toolcell file work")


async def aside(function: Callable[[*Given], Result], *given: *Given) -> Result:
    """Run it in a thread. SandboxError where this process may start none."""
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(MAX_THREADS)
        _limiter.set(limiter)
    started = False

    def run() -> Result:
        nonlocal started
        started = True
        return function(*given)

    try:
        return await run_sync(run, limiter=limiter)
    except RuntimeError as error:
        if started:
            raise
        raise SandboxError(
            f"No thread can be started for the supervisor's file work: {error}",
            step="start thread",
            cure="Raise the limit on processes (ulimit -u, or pids.max of the cgroup that this runs in).",
        ) from error
