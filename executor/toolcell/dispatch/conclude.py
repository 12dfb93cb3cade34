"""From the end of a call to its result: check it against the tool's declaration, run the hooks, record it.

`concluded` has the order of these steps, and none may move: an output is checked before a hook sees it, what the hooks
leave is checked like the result of a tool, and secrets are removed before a long output is saved and the call recorded.
"""

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pydantic

from toolcell.backends.threads import NoThread, in_thread
from toolcell.pool.run import EMPTY, Captured, Outcome, Used
from toolcell.rules.call import ToolCall
from toolcell.rules.redaction import Redaction
from toolcell.sessions.protection import Watch
from toolcell.sessions.session_result import SessionData, SessionTally
from toolcell.wire.budget import is_beyond
from toolcell.wire.frames import encoded_bytes
from toolcell.wire.messages import VALUES_BYTES
from toolcell.wire.protocol import display_of
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.definition import Tool
from toolcell_tools.errors import (
    ExecutionError,
    ProtocolViolation,
    ToolError,
)
from toolcell_tools.preview import is_printable, printable, shortened, transcript
from toolcell_tools.raised import type_shown
from toolcell_tools.result import CapturedOutput, Notice, SandboxSummary, ToolResult, Usage, constructor
from toolcell_tools.returned import DISPLAY_TEXT_CHARS, MAX_ITEMS
from toolcell_tools.signals import read_signals

from . import hooks
from .call_context import CallContext
from .call_errors import MESSAGE_CHARS, error_of, unseen, withheld
from .call_record import record, record_without_run, refusal_facts
from .changed_files import with_changes
from .hooks import left_by_hooks
from .protected_names import held, quarantined, trespass, unchecked
from .route import Route
from .run_in_cell import Ran
from .services import Caller
from .validate import Checks, OutputSchema, returned_failure

MEMBER_CHARS = 64
_REPR = reprlib.Repr()  # for arguments, which may be large
_REPR.maxstring = _REPR.maxother = 160
_usage: Callable[[Any], Usage] = constructor(Usage)
_result: Callable[[dict[str, Any]], ToolResult] = constructor(ToolResult)
INLINE_BYTES = 16 * 1024
"""The most received bytes of a result that is redacted on the event loop. More takes a thread."""


async def concluded(context: CallContext, call: ToolCall, checks: Checks, ran: Ran) -> ToolResult:
    """The result of a call that has run. Steps that the usual call does not need are skipped, to save time."""
    services, caller = context.services, context.caller
    route, outcome, used, secrets, run, watch, confirmation = ran
    if context.trace is not None and run is not None:
        reused = not run.is_first_of_cell
        context.trace.ran(run.queued_at, used["queue_s"], run.started_at, used["wall_s"], reused=reused)
    shown = outcome
    if outcome.ending == "error" and "type" in (caller.profile.exceptions, route.declaration.exceptions):
        shown = type_only(outcome)
    result, malformed = result_of(route, call, shown, used)
    of_cell = run is not None and (run.state_lost or run.files_lost or (run.cell is not None and run.cell.in_userns))
    if malformed or confirmation or watch is not None or of_cell:
        result = _marked(caller, ran, result, malformed)
    if run is not None and (changes := run.changes) is not None and changes.tells:
        result = await with_changes(result, changes)
    schema = checks.output if outcome.ending == "result" and not confirmation else None
    if schema is not None and result.error is None:
        misfit = schema.misfit(result.output)
        if misfit is not None:
            result = withheld(result, misfit).model_copy(update={"artifacts": result.artifacts})  # the files exist
    if "values" in outcome.payload and result.values:
        result = _remembered(caller.data, result)
    received = used["received_bytes"]
    if services.hooks:
        result = await _after_hooks(context, call, route, result, schema, checks.output)
        received = 0  # the size is no longer known
    if caller.secrets.redaction is not None:
        result = await _redacted(result, caller.secrets.redaction, used["received_bytes"])
    if not 0 < received <= services.overflow.sure_bytes and result.error is None:
        result = await services.overflow.spilled(result, caller.readable_workspace)
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


def result_of(route: Route, call: ToolCall, outcome: Outcome, used: Used) -> tuple[ToolResult, str]:
    """The result of a call with this outcome, and what is wrong with a malformed answer, or "". Whoever calls this ends
    the cell that sent a malformed answer.
    """
    error: ToolError | None = None
    malformed = ""
    fields: dict[str, Any] = {
        **route.blank,
        "call_id": call.id,
        "arguments": {**call.arguments},
        "artifacts": [],
        "content": [],
        "values": {},
        "usage": _usage({**used, "attempts": call.attempt}),
    }
    if outcome.stdout is not EMPTY:
        fields["stdout"] = _captured(outcome.stdout)
    if outcome.stderr is not EMPTY:
        fields["stderr"] = _captured(outcome.stderr)
    if outcome.ending == "result":
        try:
            _add_payload(fields, outcome.payload, route.declaration)
        except (pydantic.ValidationError, TypeError, KeyError, ValueError) as wrong:
            first_line = str(wrong).partition("\n")[0]
            malformed = f"The result frame is not a result: {first_line}"
            error = ProtocolViolation(message=malformed)
    elif outcome.ending == "error" and outcome.reason == "confirm":
        malformed = "it asks for a confirmation, and its declaration does not say that it confirms"
        error = error_of(replace(outcome, ending="violation", message=malformed), route.declaration, route.limits, 0.0)
    elif outcome.ending == "error" and outcome.reason == "failure" and route.declaration.failure_mode == "return":
        message = outcome.message[:MESSAGE_CHARS]
        failure = returned_failure(message, outcome.payload.get("data"), route.declaration)
        if isinstance(failure, ExecutionError):
            error = failure
        else:
            fields["output"], fields["display"] = failure, message
    else:
        error = error_of(outcome, route.declaration, route.limits, used["wall_s"] + used["queue_s"])
    if error is not None:
        fields["error"] = error
        fields["display"] = _display_of_error(fields, error)
    return _result(fields), malformed


def _display_of_error(fields: Mapping[str, Any], error: ToolError) -> str:
    """The display of an error for people: the call, its output and the error."""
    given = ", ".join(f"{name}={_REPR.repr(value)}" for name, value in fields["arguments"].items())
    heading = printable(shortened(f"{fields['tool']}({given})"))
    message = printable(error.message, keep="\n\t")
    return transcript(heading, fields["stdout"].text, fields["stderr"].text, message)


def _add_payload(fields: dict[str, Any], payload: Mapping[str, Any], declaration: ToolDeclaration) -> None:
    """Add a cell's payload to a result's fields. For a malformed payload, raises ValueError (pydantic's ValidationError
    is one), TypeError or KeyError, and adds nothing. A payload omits empty fields, and a display that equals
    `display_of(output)`.
    """
    output = payload["output"]
    display = payload["display"] if "display" in payload else display_of(output)
    if type(display) is not str:
        raise TypeError("display is a string")
    if len(payload) > (2 if "display" in payload else 1):
        fields.update(_other_parts(payload, declaration))
    fields["output"], fields["display"] = output, display


def _other_parts(payload: Mapping[str, Any], declaration: ToolDeclaration) -> dict[str, Any]:
    artifacts, content, values = payload.get("artifacts", []), payload.get("content", []), payload.get("values", {})
    for name, sent in (("artifacts", artifacts), ("content", content)):
        if type(sent) is not list or len(cast("list[object]", sent)) > MAX_ITEMS:
            raise TypeError(f"{name} is a list of at most {MAX_ITEMS:,}")
    if type(values) is not dict:
        raise TypeError("values is a map")
    if values and encoded_bytes(cast("dict[str, Any]", values)) > VALUES_BYTES:
        raise TypeError(f"values has more than {VALUES_BYTES:,} bytes")
    member = payload.get("text_member", "")
    if type(member) is not str or len(member) > MEMBER_CHARS:
        raise TypeError(f"text_member is a text of at most {MEMBER_CHARS} characters")
    made = ToolResult.build(artifacts=artifacts, content=content)
    if any(artifact.uri is not None for artifact in made.artifacts):  # it could name a file of the supervisor's
        raise TypeError("an artifact has a uri, which is not a cell's to set")
    signals = read_signals(declaration.signals, payload["signals"]) if "signals" in payload else ()
    return {
        "artifacts": made.artifacts,
        "content": made.content,
        "text_member": member,
        "values": values,
        "signals": signals,
    }


def _captured(captured: Captured) -> CapturedOutput:
    return CapturedOutput(text=captured.text, total_bytes=captured.total_bytes, omitted_bytes=captured.omitted_bytes)


def _marked(caller: Caller, ran: Ran, result: ToolResult, malformed: str) -> ToolResult:
    """The result with what the cell and the audit of protected names add to it. `malformed` says what is wrong with the
    answer, or is "": the cell of a malformed answer is ended."""
    route, outcome, _used, _secrets, run, watch, confirmation = ran
    if run is not None:
        if run.cell is not None and run.cell.in_userns:
            result = result.model_copy(update={"sandbox": _without_idmapped_mounts(result.sandbox)})
        if run.state_lost:
            result = _noticed(result, _state_lost(route.tool.name, run.state_lost))
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


def _audited(caller: Caller, route: Route, result: ToolResult, watch: Watch, *, may_deny: bool) -> ToolResult:
    """The result after the audit of protected names: a denial in its place, or with notices of the findings."""
    workspace, profile = caller.workspace, route.spec.profile
    if watch.hung is not None:
        return withheld(result, unseen(watch.hung))
    if may_deny and (denied := trespass(workspace, route.declaration, profile, watch)) is not None:
        result = withheld(result, denied)
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
        result = await _redacted(result, caller.secrets.redaction, 0)
    result = await services.overflow.spilled(result, caller.readable_workspace)
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
        error = context.caller.secrets.redaction.value(error)
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
    return withheld(result, ExecutionError(message=message))


def for_people(result: ToolResult) -> ToolResult:
    """The result with a display that a terminal shows as it is: each control character but newline and tab is escaped,
    and a display that needs it is cut. A file's name, or a line of a file, may have any character."""
    if is_printable(result.display, keep="\n\t"):
        return result
    shown = printable(shortened(result.display, DISPLAY_TEXT_CHARS), keep="\n\t")
    return result.model_copy(update={"display": shown})


def _without_idmapped_mounts(summary: SandboxSummary) -> SandboxSummary:
    """The summary for a cell in a user namespace, because its workspace's file system has no id-mapped mounts."""
    return summary.model_copy(update={"on": tuple(name for name in summary.on if name != "idmapped_mounts")})


def _state_lost(tool: str, how: str) -> Notice:
    """The notice for the first call in a new process of a kept tool. `how` says how the previous process ended."""
    message = (
        f"The tool {tool!r} runs in a new process: the process of earlier calls {how}. "
        "Variables and connections of earlier calls are lost; create them again."
    )
    return Notice(kind="state_lost", message=message)


def type_only(outcome: Outcome) -> Outcome:
    """The outcome of a call that raised, with types in place of the texts of exceptions. What was written for the model
    stays."""
    hidden = outcome.payload.get("hidden")
    if isinstance(hidden, str):
        return replace(outcome, message=hidden)
    if outcome.reason != "exception":
        return outcome
    name = outcome.message.partition(":")[0]
    return replace(outcome, message=f"{type_shown(name)} was raised. Its text is not shown.")


async def _redacted(result: ToolResult, redaction: Redaction, received_bytes: int) -> ToolResult:
    """The result without the secrets, in all parts that a model may read. A large one takes a thread."""
    if received_bytes + sum(len(each.path) + len(each.diff or "") for each in result.artifacts) > INLINE_BYTES:
        try:
            return await in_thread(partial(redaction.result, result))
        except NoThread:
            pass
    return redaction.result(result)
