"""Ask a module for its tools. This is a normal call, in a cell of the session that has no grants."""

from toolcell.rules.call import ToolCall
from toolcell.sessions.modules import ModuleSource, describer
from toolcell_tools.toolsets import ToolsetError

from .context import CallContext
from .result import error_of
from .route import Routes
from .services import Caller, Services
from .serving import SessionRun, in_pool

WALL_S = 30.0  # imports may be slow


async def describe(services: Services, caller: Caller, routes: Routes, source: ModuleSource) -> object:
    """The module's description of its tools, unchecked. Raises ToolsetError if the module cannot be imported."""
    context = CallContext(services, caller, routes, f"{caller.id}-describe-{source.module}")
    # Without the session's config and values, because the description is cached for all sessions.
    call = ToolCall(context.call_id, describer().name, dict(source.shipment))
    run = SessionRun(context, routes.of_description(source), call, WALL_S)
    outcome = await in_pool(context, run)
    if outcome.ending != "result":
        raise ToolsetError(error_of(outcome, describer().declaration, run.limits, run.elapsed_s).message, source.module)
    return outcome.payload.get("output")
