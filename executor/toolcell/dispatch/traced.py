"""Run a call within a span, if the supervisor has `telemetry`."""

import logging
from collections.abc import Mapping
from typing import Any

from toolcell.telemetry.tracing import Telemetry
from toolcell_tools.interrupts import pass_on
from toolcell_tools.result import ToolResult

from .context import CallContext, Repair
from .pipeline import dispatch

_log = logging.getLogger("toolcell.telemetry")


async def traced(
    telemetry: Telemetry, context: CallContext, name: str, arguments: Mapping[str, Any], repair: Repair | None = None
) -> ToolResult:
    """Run the call, as `dispatch` does. All its attempts are one span, which is current for hooks, approvers and host
    tools."""
    caller = context.caller
    try:
        trace = telemetry.begin(name, context.call_id, caller.id, caller.kind.value, caller.agent_id)
    except BaseException as error:
        pass_on(error)
        _log.exception("the telemetry of call %s failed", context.call_id)
        return await dispatch(context, name, arguments, repair)
    try:
        with trace.active():
            result = await dispatch(context._replace(trace=trace), name, arguments, repair)
    except BaseException as error:
        trace.left(error)
        raise
    tool = caller.toolbox.found(result.tool)
    trace.ended(result, None if tool is None else tool.declaration, arguments)
    return result
