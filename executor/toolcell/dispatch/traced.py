"""Run a call within a span, if the supervisor has `telemetry`."""

from collections.abc import Mapping
from typing import Any

from toolcell.telemetry.tracing import Telemetry
from toolcell_tools.result import ToolResult

from .context import CallContext, Repair
from .pipeline import dispatch


async def traced(
    telemetry: Telemetry, context: CallContext, name: str, arguments: Mapping[str, Any], repair: Repair | None = None
) -> ToolResult:
    """Run the call, as `dispatch` does. All its attempts are one span, which is current for hooks, approvers and host
    tools."""
    caller = context.caller
    trace = telemetry.begin(name, context.call_id, caller.id, caller.kind.value, caller.agent_id)
    try:
        with trace.active():
            result = await dispatch(context._replace(trace=trace), name, arguments, repair)
    except BaseException as error:
        trace.left(error)
        raise
    tool = caller.toolbox.found(result.tool)
    trace.ended(result, None if tool is None else tool.declaration, arguments)
    return result
