"""Ask the source of foreign tools for its list, in the process that runs them."""

from toolcell.rules.call import ToolCall
from toolcell.sessions.foreign_tools import BUSY, ForeignTool
from toolcell_tools.toolsets import ToolsetError

from .context import CallContext
from .execute import Ran, in_cell
from .offer import lacking
from .result import error_of
from .route import Routes
from .services import Caller, Services


async def listed(
    services: Services, caller: Caller, routes: Routes, lister: ForeignTool, wall_s: float
) -> object | None:
    """The output of the lister's call, unchecked. None if the session lacks what the source needs: nothing is started.
    BUSY if the process that would answer runs a call. Raises ToolsetError if the lister's call fails."""
    if lacking(caller, lister):
        return None
    route = routes.of_listing(lister)
    if services.pool.is_serving(route.spec.key):
        return BUSY
    context = CallContext(services, caller, routes, f"{caller.id}-{lister.name}")
    call = ToolCall(context.call_id, lister.name, {})
    ran = await in_cell(context, route, call, None, True, wall_s)
    if not isinstance(ran, Ran):
        raise ToolsetError(ran.message, lister.name)
    outcome, run = ran.outcome, ran.run
    if outcome.ending == "result":
        return outcome.payload.get("output")
    assert run is not None  # `in_cell` always has one
    said = outcome.stderr.text.strip().rpartition("\n")[2][-500:]
    message = error_of(outcome, lister.declaration, run.limits, run.elapsed_s).message
    raise ToolsetError(f"{message} It printed: {said}" if said else message, lister.name)
