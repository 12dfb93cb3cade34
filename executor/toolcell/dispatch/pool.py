"""Handing a call to the pool, and waiting for its end."""

from typing import TYPE_CHECKING

from toolcell.pool.run import Outcome, Run

if TYPE_CHECKING:
    from toolcell.session import Session


async def in_pool(session: "Session", run: Run) -> Outcome:
    """Submit and wait. If the waiting task is cancelled, the call is ended behind it and nothing is left running."""
    session.pool.submit(run)
    try:
        if run.outcome is None:
            await run.waiter.wait()
    except BaseException:
        session.pool.cancel(run)
        raise
    assert run.outcome is not None
    return run.outcome
