"""Asking a module what tools it has: a call like any other, in a cell of the session that is granted nothing."""

from typing import TYPE_CHECKING

from toolcell.call import ToolCall
from toolcell.sessions.modules import Source, describer
from toolcell_tools.toolsets import ToolsetError

from .pool import SessionRun, in_pool
from .result import error_of

if TYPE_CHECKING:
    from toolcell.session import Session

WALL_S = 30.0  # importing may be slow


async def describe(session: "Session", source: Source) -> object:
    """What the module says of its tools, unchecked. Raises ToolsetError where it cannot be imported."""
    route = session.describing_route(source)
    # Without the session's config and values: what it says is kept for all sessions.
    call = ToolCall(f"{session.id}-describe-{source.module}", describer().name, dict(source.shipment))
    run = SessionRun(session, route, call, WALL_S)
    outcome = await in_pool(session, run)
    if outcome.ending != "result":
        raise ToolsetError(error_of(outcome, describer().declaration, run.limits, run.elapsed_s).message, source.module)
    return outcome.payload.get("output")
