"""Handing a call to the pool, and waiting for its end."""

from typing import TYPE_CHECKING

from toolcell.pool.run import Outcome, Run
from toolcell.sessions.protection import Guarded, Watch

from .audit import audit

if TYPE_CHECKING:
    from toolcell.session import Session


async def in_pool(session: "Session", run: Run, guarded: Guarded | None = None, watch: Watch | None = None) -> Outcome:
    """Submit and wait, until the outcome is there and the audit done. If the waiting task is cancelled, the call is
    ended and audited behind it, and nothing is left running.
    """
    pool = session.supervisor.pool
    outcome = pool.submit(run)
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
