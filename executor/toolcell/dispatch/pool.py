"""Handing a call to the pool, and waiting for its end."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from toolcell.pool.pool import Pool
from toolcell.pool.reactor import Waiter
from toolcell.pool.run import Outcome, Run
from toolcell.sessions.protection import Guarded, Watch

from .audit import audit

if TYPE_CHECKING:
    from toolcell.session import Session


def in_pool(
    session: "Session", run: Run, guarded: Guarded | None = None, watch: Watch | None = None
) -> Coroutine[Any, Any, Outcome]:
    """Submit the call, now; what is returned waits for its outcome and, where it is watched, for the audit. If the
    waiting task is cancelled, the call is ended and audited behind it, and nothing is left running.
    """
    pool = session.pool
    return _ended(session, pool, run, pool.submit(run), guarded, watch)


async def _ended(
    session: "Session", pool: Pool, run: Run, outcome: Waiter[Outcome], guarded: Guarded | None, watch: Watch | None
) -> Outcome:
    try:
        if watch is None or guarded is None:
            return await outcome
        ended = await outcome
        await audit(session, run, guarded, watch)
        return ended
    except BaseException:
        pool.cancel(run)
        if guarded is not None and watch is not None:
            session.in_background(audit, session, run, guarded, watch)
        raise
