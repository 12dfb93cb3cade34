"""From the end of a call to its result: check it against the tool's declaration, run the hooks, record it."""

from typing import Any

from toolcell.call import ToolCall
from toolcell.sessions.data import SessionData
from toolcell.wire.messages import VALUES_BYTES
from toolcell_tools.definition import Tool
from toolcell_tools.errors import ExecutionError, ToolError
from toolcell_tools.result import ToolResult, Usage

from . import hooks
from .admit import judge
from .catalog import Checks
from .changed_files import with_changes
from .context import CallContext
from .execute import Ran
from .present import NOTHING, fitting, for_people, left_by_hooks
from .protected_names import held, quarantined, trespass, unchecked
from .record import record, refusal_facts
from .redacted import redacted, redacted_error, type_only
from .result import in_userns, result_of, state_lost
from .route import Route
from .serving import SessionRun
from .streams import READ_ON


async def concluded(context: CallContext, call: ToolCall, checks: Checks, ran: Ran) -> ToolResult:
    """The result of a call that has run."""
    route, outcome, used, run, watch, confirmation = ran
    services, caller, tool = context.services, context.caller, route.tool
    if context.trace is not None and run is not None:
        reused = not run.is_first_of_cell
        context.trace.ran(run.queued_at, used["queue_s"], run.started_at, used["wall_s"], reused=reused)
    # render
    if (
        outcome.reason == "exception"
        and outcome.ending == "error"
        and "type" in (caller.profile.exceptions, route.declaration.exceptions)
    ):
        outcome = type_only(outcome)
    result, lie = result_of(route, call, outcome, used)
    if run is not None:
        if run.cell is not None and run.cell.in_userns:
            result = result.model_copy(update={"sandbox": in_userns(result.sandbox)})
        if run.state_lost:
            result = result.model_copy(update={"notices": (*result.notices, state_lost(tool.name, run.state_lost))})
    answered = outcome.ending == "result"
    if confirmation:
        result, answered = result.model_copy(update={"confirmation": confirmation}), False
    if lie and run is not None and run.cell is not None:
        run.cell.calls.condemn(run, lie)
    elif watch is not None and (answered or outcome.ending == "error"):
        denied = trespass(caller.workspace, route.declaration, route.spec.profile, watch)
        if denied is not None:
            result = result.model_copy(update={**NOTHING, "error": denied})
    if watch is not None:
        if watch.tells:
            found = [quarantined(caller.workspace, route.spec.profile, watch)] if watch.findings else []
            not_all = [unchecked(watch)] if watch.unknown else []
            result = result.model_copy(update={"notices": (*result.notices, *found, *not_all)})
        elif watch.bound and (busy := held(caller.workspace, watch, result)) is not None:
            result = result.model_copy(update={"notices": (*result.notices, busy)})
    if run is not None and (changes := run.changes) is not None and changes.tells:
        result = await with_changes(result, changes)
    schema = checks.output if answered else None
    if schema is not None and result.error is None:
        result = fitting(result, schema)
    if "values" in outcome.payload and result.values:
        result = _remembered(caller.data, result)
    # after hooks
    received = used["received_bytes"]
    if services.hooks:
        returned = result
        result = await hooks.after(services.hooks, caller.life, call, returned, services.hook_timeout_s)
        if returned.error is not None or result.output is not returned.output:
            schema = checks.output
        result = left_by_hooks(result, tool, route.limits, schema)  # always: a hook may have changed it in place
        received = 0
    redaction = caller.secrets.redaction
    if redaction is not None:
        result = await redacted(result, redaction, used["received_bytes"])
    if not services.overflow.fits(received) and result.error is None:
        own = caller.workspace if caller.grants >= READ_ON else None
        result = await services.overflow.spilled(result, own)
    if run is not None and run.streams is not None:
        result = await run.streams.told(result)
    if result.error is not None:
        sent = {"delivered": ran.is_delivered, "effect": ran.has_effect}
        result = result.model_copy(update={"error": result.error.model_copy(update=sent)})
    if result.error is not None or services.gate.breaker.circuits:
        judge(services, caller, call.id, route.declaration, result.error)
    result = for_people(result)
    # record
    tally = caller.tally  # added to here, because a call of a method would take time in each call
    tally.calls += 1
    tally.cpu_s += used["cpu_s"]
    tally.wall_s += used["wall_s"]
    tally.bytes += used["sent_bytes"] + used["received_bytes"]
    if result.artifacts:
        tally.made(result.artifacts)
    if result.error is not None:
        tally.failed(call.id, call.tool, result.error)
    record(
        services,
        caller.id,
        call,
        tool.version,
        result.error,
        used,
        outcome,
        result.display,
        result.notices,
        None if services.durable is None else _where(run),
        result.artifacts,
    )
    return result


async def put_in_place(
    context: CallContext, call: ToolCall, checks: Checks, route: Route, given: ToolResult, by: str
) -> ToolResult:
    """The result that a hook put in place of the call, which is allowed and does not run. It is checked as any."""
    services, caller, tool = context.services, context.caller, route.tool
    names = ("output", "display", "artifacts", "content", "error", "signals")
    parts = {name: getattr(given, name) for name in names}
    result = ToolResult.build(
        **parts,
        usage=Usage(attempts=call.attempt),
        call_id=call.id,
        tool=tool.name,
        version=tool.version,
        session_id=caller.id,
        arguments={**call.arguments},
        sandbox=route.sandbox,
    )
    result = await hooks.after(services.hooks, caller.life, call, result, services.hook_timeout_s)
    result = left_by_hooks(result, tool, route.limits, checks.output)
    if caller.secrets.redaction is not None:
        result = await redacted(result, caller.secrets.redaction, 0)
    if result.error is None and not services.overflow.fits(0):
        own = caller.workspace if caller.grants >= READ_ON else None
        result = await services.overflow.spilled(result, own)
    result = for_people(result)
    if result.error is not None:
        caller.tally.failed(call.id, call.tool, result.error)
    record(services, caller.id, call, tool.version, result.error, display=result.display, by=by)
    return result


def refused(
    context: CallContext,
    call: ToolCall,
    tool: Tool[..., Any] | None,
    error: ToolError,
    *,
    intended: bool = False,
) -> ToolResult:
    """The result of a call that never reached a cell. It is recorded. `intended`: it has an intent in the journal."""
    services, session_id = context.services, context.caller.id
    if context.caller.secrets.redaction is not None:
        error = redacted_error(error, context.caller.secrets.redaction)
    call = call._replace(tool=str(call.tool)[:64])
    version = tool.version if tool is not None else ""
    more: dict[str, object] | None = None
    if services.durable is not None and not intended:
        more = refusal_facts(context.caller, call, None if tool is None else tool.declaration)
    record(services, session_id, call, version, error, more=more)
    context.caller.tally.failed(call.id, call.tool, error)
    return ToolResult.build(
        error=error,
        usage=Usage(attempts=call.attempt),
        call_id=call.id,
        tool=call.tool,
        version=version,
        session_id=session_id,
        sandbox=services.sandbox,
    )


def _where(run: SessionRun | None) -> dict[str, object]:
    """Where a call has run."""
    if run is None:
        return {"ran": "host"}
    if run.cell is None or not run.started_at:
        return {}
    return {"ran": "cell", "cell": run.cell.pid, "reused": not run.is_first_of_cell}


def _remembered(data: SessionData, result: ToolResult) -> ToolResult:
    """The result, after its values are merged into the session's. Their bound is the same as for one call's values."""
    if data.remember(result.values):
        return result
    message = (
        f"The session's values would be larger than {VALUES_BYTES:,} bytes with those that the call left in "
        "ctx.values; keep large data in a file."
    )
    return result.model_copy(update={**NOTHING, "error": ExecutionError(message=message)})
