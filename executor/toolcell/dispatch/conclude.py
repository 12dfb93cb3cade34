"""From the end of a call to its result: check it against the tool's declaration, run the hooks, record it."""

from typing import Any

from toolcell.pool.run import Used
from toolcell.rules.call import ToolCall
from toolcell.sessions.data import SessionData
from toolcell.sessions.protection import Watch
from toolcell.sessions.tally import SessionTally
from toolcell.wire.budget import is_beyond
from toolcell.wire.messages import VALUES_BYTES
from toolcell_tools.definition import Tool
from toolcell_tools.errors import ExecutionError, ToolError
from toolcell_tools.result import Notice, ToolResult, Usage

from . import hooks
from .catalog import Checks
from .changed_files import with_changes
from .context import CallContext
from .execute import Ran, unseen
from .output import OutputSchema
from .present import NOTHING, fitting, for_people, left_by_hooks
from .protected_names import held, quarantined, trespass, unchecked
from .record import record, record_without_run, refusal_facts
from .redacted import redacted, redacted_error, type_only
from .result import in_userns, result_of, state_lost
from .route import Route
from .services import Caller, Services
from .streams import READ_ON


async def concluded(context: CallContext, call: ToolCall, checks: Checks, ran: Ran) -> ToolResult:
    """The result of a call that has run. Steps that the usual call does not need are skipped, to save time."""
    services, caller = context.services, context.caller
    route, outcome, used, secrets, run, watch, confirmation = ran
    if context.trace is not None and run is not None:
        reused = not run.is_first_of_cell
        context.trace.ran(run.queued_at, used["queue_s"], run.started_at, used["wall_s"], reused=reused)
    shown = outcome
    if outcome.ending == "error" and _hides_exceptions(caller, route):
        shown = type_only(outcome)
    result, malformed = result_of(route, call, shown, used)
    of_cell = run is not None and (run.state_lost or run.files_lost or (run.cell is not None and run.cell.in_userns))
    if malformed or confirmation or watch is not None or of_cell:
        result = _marked(caller, ran, result, malformed)
    if run is not None and (changes := run.changes) is not None and changes.tells:
        result = await with_changes(result, changes)
    schema = checks.output if outcome.ending == "result" and not confirmation else None
    if schema is not None and result.error is None:
        result = fitting(result, schema)
    if "values" in outcome.payload and result.values:
        result = _remembered(caller.data, result)
    received = used["received_bytes"]
    if services.hooks:
        result = await _after_hooks(context, call, route, result, schema, checks.output)
        received = 0  # the size is no longer known
    if caller.secrets.redaction is not None:
        result = await redacted(result, caller.secrets.redaction, used["received_bytes"])
    if not services.overflow.fits(received) and result.error is None:
        result = await _spilled(services, caller, result)
    if run is not None and run.streams is not None:
        result = await run.streams.told(result)
    if result.error is not None:
        sent = {"delivered": ran.is_delivered, "effect": ran.has_effect}
        result = result.model_copy(update={"error": result.error.model_copy(update=sent)})
    if not (result.display.isascii() and result.display.isprintable()):  # else nothing is to be escaped
        result = for_people(result)
    if result.error is not None or caller.malformed:
        result = _judged(context, call.tool, result)
    _add_to_tally(caller.tally, call, used, result)
    record(services, caller, call, route, result, used, outcome, run, secrets)
    return result


def _marked(caller: Caller, ran: Ran, result: ToolResult, malformed: str) -> ToolResult:
    """The result with what the cell and the audit of protected names add to it. `malformed` says what is wrong with the
    answer, or is "": the cell of a malformed answer is ended."""
    route, outcome, _used, _secrets, run, watch, confirmation = ran
    if run is not None:
        if run.cell is not None and run.cell.in_userns:
            result = result.model_copy(update={"sandbox": in_userns(result.sandbox)})
        if run.state_lost:
            result = _noticed(result, state_lost(route.tool.name, run.state_lost))
        if run.files_lost:
            result = _noticed(result, Notice(kind="state_lost", message=run.files_lost))
    if confirmation:
        result = result.model_copy(update={"confirmation": confirmation})
    condemned = False
    if malformed and run is not None and run.cell is not None:
        run.cell.calls.condemn(run, malformed)
        condemned = True
    if watch is None:
        return result
    may_deny = outcome.ending == "error" or (outcome.ending == "result" and not confirmation)
    return _audited(caller, route, result, watch, may_deny=may_deny and not condemned)


def _hides_exceptions(caller: Caller, route: Route) -> bool:
    """Whether the model may read only the type of an exception."""
    return "type" in (caller.profile.exceptions, route.declaration.exceptions)


def _audited(caller: Caller, route: Route, result: ToolResult, watch: Watch, *, may_deny: bool) -> ToolResult:
    """The result after the audit of protected names: a denial in its place, or with notices of the findings."""
    workspace, profile = caller.workspace, route.spec.profile
    if watch.hung is not None:
        return result.model_copy(update={**NOTHING, "error": unseen(watch.hung)})
    if may_deny and (denied := trespass(workspace, route.declaration, profile, watch)) is not None:
        result = result.model_copy(update={**NOTHING, "error": denied})
    if watch.tells:
        found = [quarantined(workspace, profile, watch)] if watch.findings else []
        not_all = [unchecked(watch)] if watch.unknown else []
        return _noticed(result, *found, *not_all)
    if watch.bound and (busy := held(workspace, watch, result)) is not None:
        return _noticed(result, busy)
    return result


async def _after_hooks(
    context: CallContext,
    call: ToolCall,
    route: Route,
    result: ToolResult,
    schema: OutputSchema | None,
    output: OutputSchema | None,
) -> ToolResult:
    """The result that the hooks leave, checked like the result of a tool. `schema` is the schema that `result` had to
    fit. A result that a hook puts in place of an error or of another output must fit `output`, the tool's schema."""
    services = context.services
    left = await hooks.after(services.hooks, context.caller.life, call, result, services.hook_timeout_s)
    if result.error is not None or left.output is not result.output:
        schema = output
    return left_by_hooks(left, route.tool, route.limits, schema)  # always: a hook may have changed it in place


async def _spilled(services: Services, caller: Caller, result: ToolResult) -> ToolResult:
    """The result, with its full output in a file if that is too long for a model."""
    return await services.overflow.spilled(result, caller.workspace if caller.grants >= READ_ON else None)


def _judged(context: CallContext, tool: str, result: ToolResult) -> ToolResult:
    error = context.caller.malformed.judged(tool, result.error, context.began, context.services.in_background)
    return result if error is result.error else result.model_copy(update={"error": error})


def _add_to_tally(tally: SessionTally, call: ToolCall, used: Used, result: ToolResult) -> None:
    """Add the call to the session's tally. The figures are added here, because a method would take time in each
    call."""
    tally.calls += 1
    tally.cpu_s += used["cpu_s"]
    tally.wall_s += used["wall_s"]
    tally.bytes += used["sent_bytes"] + used["received_bytes"]
    if result.artifacts:
        tally.made(result.artifacts)
    if result.error is not None:
        tally.failed(call.id, call.tool, result.error)


def _noticed(result: ToolResult, *notices: Notice) -> ToolResult:
    return result.model_copy(update={"notices": (*result.notices, *notices)})


async def put_in_place(
    context: CallContext, call: ToolCall, checks: Checks, route: Route, given: ToolResult, by: str
) -> ToolResult:
    """The result of a call that is allowed and does not run, because a hook gave this result in its place. It is
    checked like any other result."""
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
        result = await _spilled(services, caller, result)
    result = _judged(context, call.tool, for_people(result))
    if result.error is not None:
        caller.tally.failed(call.id, call.tool, result.error)
    record_without_run(
        services, caller, call, tool.version, result.error, {"by": f"hook {by}"} if by else {}, result.display
    )
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
    services = context.services
    if context.caller.secrets.redaction is not None:
        error = redacted_error(error, context.caller.secrets.redaction)
    call = call._replace(tool=str(call.tool)[:64])
    if tool is not None:
        error = context.caller.malformed.judged(tool.name, error, context.began, services.in_background) or error
    version = tool.version if tool is not None else ""
    more: dict[str, object] = {}
    if services.durable is not None and not intended:
        more = refusal_facts(context.caller, call, None if tool is None else tool.declaration)
        if is_beyond(call.arguments):
            call = call._replace(arguments={})  # validation has stopped, so the error quotes none of the values
    record_without_run(services, context.caller, call, version, error, more)
    context.caller.tally.failed(call.id, call.tool, error)
    return ToolResult.build(
        error=error,
        usage=Usage(attempts=call.attempt),
        call_id=call.id,
        tool=call.tool,
        version=version,
        session_id=context.caller.id,
        sandbox=services.sandbox,
    )


def _remembered(data: SessionData, result: ToolResult) -> ToolResult:
    """The result, after its values are merged into the session's. Their bound is the same as for one call's values."""
    if data.remember(result.values):
        return result
    message = (
        f"The session's values would be larger than {VALUES_BYTES:,} bytes with those that the call left in "
        "ctx.values; keep large data in a file."
    )
    return result.model_copy(update={**NOTHING, "error": ExecutionError(message=message)})
