"""Find the tool of a name, and ask modules and other sources for the tools that they have."""

from difflib import get_close_matches
from typing import Any

from toolcell.backends.threads import NoThread
from toolcell.rules.call import ToolCall
from toolcell.rules.policy import is_offered
from toolcell.sessions.foreign_tools import BUSY, ForeignTool
from toolcell.sessions.modules import ModuleSource, describer
from toolcell_tools.definition import Tool
from toolcell_tools.errors import Overloaded, PermissionDenied, UnknownTool
from toolcell_tools.toolsets import ToolsetError

from .call_context import CallContext
from .call_errors import error_of, no_thread, of_provider
from .permit import lacking
from .route import Routes
from .run_in_cell import Ran, in_cell
from .services import Caller, Services
from .serving import SessionRun, in_pool

MODULE_WALL_S = 30.0  # imports may be slow


async def resolved(
    services: Services, caller: Caller, name: str
) -> Tool[..., Any] | UnknownTool | PermissionDenied | Overloaded:
    """The tool of a name that is not known yet. The toolsets are asked again."""
    try:
        tool = await caller.toolbox.find(name)
    except ToolsetError as error:
        if isinstance(error.__cause__, NoThread):
            return no_thread(error.__cause__)
        return _unknown(services, caller, name, f" {error}")
    if tool is not None:
        return tool
    elsewhere = caller.toolbox.of_provider(name)
    return _unknown(services, caller, name) if elsewhere is None else of_provider(elsewhere)


def _unknown(services: Services, caller: Caller, name: str, why: str = "") -> UnknownTool:
    known = [
        known
        for known, tool in caller.toolbox.known.items()
        if not lacking(caller, tool) and is_offered(services.policy, tool.declaration, caller.data.info)
    ]
    near = tuple(get_close_matches(str(name), known, n=3, cutoff=0.4))
    hint = f" Did you mean {' or '.join(repr(one) for one in near)}?" if near else ""
    return UnknownTool(message=f"There is no tool named {str(name)[:64]!r}.{hint}{why}", suggestions=near)


async def tools_of_module(services: Services, caller: Caller, routes: Routes, source: ModuleSource) -> object:
    """The module's list of its tools, unchecked, by a call in a cell of the session that has no grants. Raises
    ToolsetError if the module cannot be imported."""
    context = CallContext(services, caller, routes, f"{caller.id}-describe-{source.module}")
    # Without the session's config and values, because the list is cached for all sessions.
    call = ToolCall(context.call_id, describer().name, dict(source.shipment))
    run = SessionRun(context, routes.of_description(source), call, MODULE_WALL_S)
    outcome = await in_pool(context, run)
    if outcome.ending != "result":
        raise ToolsetError(error_of(outcome, describer().declaration, run.limits, run.elapsed_s).message, source.module)
    return outcome.payload.get("output")


async def tools_of_source(
    services: Services, caller: Caller, routes: Routes, lister: ForeignTool, wall_s: float
) -> object | None:
    """The list of the tools of a foreign source, unchecked, by a call in the process that runs them. None if the
    session lacks what the source needs: nothing is started. BUSY if that process runs a call. Raises ToolsetError if
    the lister's call fails."""
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
