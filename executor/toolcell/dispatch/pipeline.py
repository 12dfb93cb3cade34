"""The pipeline: from a tool call to its result, every step in the order in which it happens.

Nothing here raises for what a tool, a model or a sandbox does. What a repair replaced is validated again, so what was
checked is what runs.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, final

from toolcell.backends.threads import NO_THREAD_RETRY_S, NoThread
from toolcell.call import ToolCall
from toolcell.errors import UsageError
from toolcell.journal import Record
from toolcell.pool.run import NOTHING_USED, SOON_S, Outcome, Used
from toolcell.pool.zygote import CURES, EXHAUSTED
from toolcell.sessions import ending
from toolcell.sessions.protection import Watch
from toolcell.wire.frames import encoded_bytes
from toolcell.wire.messages import VALUES_BYTES
from toolcell_sandbox.errors import SandboxError
from toolcell_tools.definition import Tool
from toolcell_tools.errors import (
    Cancelled,
    ExecutionError,
    Overloaded,
    PermissionDenied,
    SandboxUnavailable,
    ToolDefinitionError,
    ToolError,
    UnknownTool,
    ValidationError,
)
from toolcell_tools.result import ToolResult, Usage
from toolcell_tools.toolsets import ToolsetError

from . import approval, hooks, host
from .audit import held, quarantined, trespass, unchecked
from .permission import mutates, of_provider, permit
from .pool import SessionRun
from .present import NOTHING, fitting, left_by_hooks
from .result import Draft, in_userns, state_lost
from .streams import READ_ON

if TYPE_CHECKING:
    from toolcell.session import Checks, Route, Session

Repair = Callable[[ValidationError], Awaitable[dict[str, Any]]]
TRACEBACK_CHARS = 20_000
_UNROUTABLE = (UsageError, ToolDefinitionError)
MOST_WAYS = 10  # that a call takes to a workspace which is replaced while it waits
MAX_ATTEMPTS = 3  # ADR-0004: at most two retries of a call whose arguments do not validate
_PUT_BACK = "Put the directory back, or open a session on another one."
_MISPLACED = SandboxUnavailable(
    message=f"The workspace is not a directory: another kind of file has taken its place. {_PUT_BACK}",
    mechanism="",
    cure=_PUT_BACK,
)
_made = tuple[Any, ...].__new__  # what calling the class of a named tuple does, in one function less
_log = logging.getLogger("toolcell.tool")


async def dispatch(
    session: "Session",
    call_id: str,
    name: str,
    arguments: Mapping[str, Any],
    timeout: float | None,
    repair: Repair | None,
    on_progress: Any,
    on_output: Any,
) -> ToolResult:
    """Run the call, letting `repair` mend its arguments up to twice; the last result stands."""
    number = 1
    while True:
        result = await attempt(session, call_id, name, arguments, number, timeout, on_progress, on_output)
        error = result.error
        if repair is None or number >= MAX_ATTEMPTS or not isinstance(error, ValidationError) or not error.retryable:
            return result
        with ending.doing(session, f"the repair of call {call_id}") as work, work.scope:
            arguments, number = await repair(error), number + 1
        if work.scope.cancelled_caught:
            return result.model_copy(update={"error": approval.closed(result.tool)})


async def attempt(
    session: "Session",
    call_id: str,
    name: str,
    arguments: Mapping[str, Any],
    number: int,
    timeout: float | None,
    on_progress: Any,
    on_output: Any = None,
) -> ToolResult:
    """One attempt at a call, the first has `number` 1, step by step."""
    supervisor = session.supervisor
    # resolve
    tool = session.toolbox.found(name)
    if tool is None:
        try:
            tool = await session.toolbox.find(name)
        except ToolsetError as error:
            if isinstance(error.__cause__, NoThread):
                return _refused(session, ToolCall(call_id, name, arguments, number), None, _no_thread(error.__cause__))
            unknown = _unknown(session, name, f" {error}")
            return _refused(session, ToolCall(call_id, name, arguments, number), None, unknown)
    if tool is None:
        elsewhere = session.of_provider(name)
        nowhere = _unknown(session, name) if elsewhere is None else of_provider(elsewhere)
        return _refused(session, ToolCall(call_id, name, arguments, number), None, nowhere)
    # validate
    try:
        route = session.route(tool)
        checks = route.checks or session.checks(route)
    except _UNROUTABLE as error:  # of a toolset's tool: the supervisor's own were tried at its start
        return _refused(session, ToolCall(call_id, name, arguments, number), tool, _unusable(error))
    valid = checks.arguments.check(arguments)
    if isinstance(valid, ValidationError):
        return _refused(session, ToolCall(call_id, name, arguments, number), tool, valid)
    declaration = route.declaration
    info = session.info
    call = ToolCall(call_id, name, valid.arguments, number, info, declaration, valid.packed)
    # before hooks
    if supervisor.hooks:
        hooked, denied = await hooks.before(session, supervisor.hooks, call)
        if denied is not None:
            return _refused(session, hooked, tool, denied)
        replaced = _replaced(checks, call, hooked.arguments, "a hook")  # always: one may have changed them in place
        if isinstance(replaced, ValidationError):
            return _refused(session, hooked, tool, replaced)
        call = replaced
        try:
            route, info = session.route(tool), session.info  # the workspace may be another directory by now
        except _UNROUTABLE as error:
            return _refused(session, call, tool, _unusable(error))
    # permit
    verdict = permit(supervisor.policy, call, route, info)
    if not isinstance(verdict, str):
        return _refused(session, call, tool, verdict)
    # approve
    if verdict:
        call = call._replace(packed=None)  # what runs is what is shown now
        try:
            approved = await approval.ask(session, tool, call, verdict)
        except _UNROUTABLE as error:  # to its preview
            return _refused(session, call, tool, _unusable(error))
        if isinstance(approved, (PermissionDenied, Cancelled)):
            return _refused(session, call, tool, approved)
        if approved is not call.arguments:
            replaced = _replaced(checks, call, approved, "the approver")
            if isinstance(replaced, ValidationError):
                return _refused(session, call, tool, replaced)
            call = replaced
        try:
            route = session.route(tool)  # as after a hook: an approver may take minutes
        except _UNROUTABLE as error:
            return _refused(session, call, tool, _unusable(error))
    # grants
    if tool.sometimes_mutates:
        changes = mutates(call, tool)
        if isinstance(changes, PermissionDenied):
            return _refused(session, call, tool, changes)
    else:
        changes = True
    # run
    if session.closed:  # while a toolset, a hook or an approver had its time
        return _refused(session, call, tool, approval.closed(call.tool))
    if not changes:
        try:
            route = session.route(tool, mutates=False)
        except _UNROUTABLE as error:
            return _refused(session, call, tool, _unusable(error))
    wall_s = timeout if timeout is not None else tool.timeout or route.limits.wall_s
    if tool.placement == "host":
        limit = route.limits.result_bytes
        outcome, used = await host.run(session, tool, call, wall_s=wall_s, result_bytes=limit, on_progress=on_progress)
        here = _Ran(route, Draft(route, call, used), route.facts.copy(), outcome, used)
        return await _concluded(session, call, checks, here)
    ran = await _in_cell(session, route, call, changes, wall_s, on_progress, on_output)
    if type(ran) is not _Ran:
        return _refused(session, call, tool, ran)
    try:
        return await _concluded(session, call, checks, ran)
    except BaseException:  # the caller has gone, while a hook or a file had its time
        if ran.run is not None:
            ran.run.leave()
        raise


@final
class _Ran(NamedTuple):
    """A call that has run, or was given up before it could."""

    route: "Route"
    draft: Draft
    facts: dict[str, Any]
    outcome: Outcome
    used: Used
    run: SessionRun | None = None
    watch: Watch | None = None


async def _in_cell(
    session: "Session",
    route: "Route",
    call: ToolCall,
    changes: bool,
    wall_s: float,
    on_progress: Any,
    on_output: Any,
) -> _Ran | SandboxUnavailable | Overloaded:
    """Run the call in a cell, of the directory that is the workspace when its turn comes."""
    run: SessionRun | None = None
    watch: Watch | None = None
    ways = 1
    while True:
        if session.is_misplaced and route.spec.cwd == str(session.workspace):
            return _MISPLACED
        if route.guarded is not None:
            try:
                keeps = bool(route.spec.key.kept_tool)
                watch = await route.guarded.enter(
                    session.id, kept=keeps or session.has_kept_writers(route), keeps=keeps
                )
            except (SandboxError, OSError) as error:
                return _unseen(error)
            except NoThread as error:
                return _no_thread(error)
        before, run = run, SessionRun(session, route, call, wall_s, on_progress, watch)
        run.on_heard, run.has_result = on_output, True
        if before is not None:  # its time goes on
            run.queued_at, run.deadline_at = before.queued_at, before.deadline_at
        late: Outcome | None = None
        if watch is not None and (session.closed or session.has_moved(route)):  # while it looked, in a thread
            late = Outcome("cancelled" if session.closed else "moved")
            run.end(late, time.monotonic())
        waiter, used = session.pool.submit(run) if late is None else late, run.used
        draft, facts = Draft(route, call, used), route.facts.copy()  # while its process is at work
        try:
            outcome = waiter if isinstance(waiter, Outcome) else await waiter
            if watch is not None:
                await run.audited(watch)
        except BaseException:
            run.abandon(watch)
            raise
        if outcome.ending != "moved" or ways >= MOST_WAYS:
            return _made(_Ran, (route, draft, facts, outcome, used, run, watch))
        ways += 1  # another directory is the workspace by now
        try:
            route = session.route(route.tool, mutates=changes)
        except _UNROUTABLE as error:
            return _unusable(error)


async def _concluded(session: "Session", call: ToolCall, checks: "Checks", ran: _Ran) -> ToolResult:
    """The result of a call that has run: held to what its tool has declared, seen by the hooks, and put on record."""
    route, draft, facts, outcome, used, run, watch = ran
    supervisor, tool = session.supervisor, route.tool
    # render
    result = draft.of(outcome)
    if run is not None and run.cell is not None and run.cell.in_userns:
        result = result.model_copy(update={"sandbox": in_userns(result.sandbox)})
    if run is not None and run.state_lost:
        result = result.model_copy(update={"notices": (*result.notices, state_lost(tool.name, run.state_lost))})
    answered = outcome.ending == "result"
    if draft.lie and run is not None and run.cell is not None:
        run.cell.calls.condemn(run, draft.lie)
    elif watch is not None and (answered or outcome.ending == "error"):
        denied = trespass(session, route.declaration, route.spec.profile, watch)
        if denied is not None:
            result = result.model_copy(update={**NOTHING, "error": denied})
    if watch is not None and watch.tells:
        found = [quarantined(session, route.spec.profile, watch)] if watch.findings else []
        not_all = [unchecked(watch)] if watch.unknown else []
        result = result.model_copy(update={"notices": (*result.notices, *found, *not_all)})
    elif watch is not None and watch.bound and (busy := held(session, watch, result)) is not None:
        result = result.model_copy(update={"notices": (*result.notices, busy)})
    schema = checks.output if answered else None
    if schema is not None and result.error is None:
        result = fitting(result, schema)
    if "values" in outcome.payload and result.values:
        result = _remembered(session, result)
    # after hooks
    received = used["received_bytes"]
    if supervisor.hooks:
        returned = result
        result = await hooks.after(session, supervisor.hooks, call, returned)
        if returned.error is not None or result.output is not returned.output:
            schema = checks.output
        result = left_by_hooks(result, tool, route.limits, schema)  # always: one may have changed it in place
        received = 0
    if not supervisor.overflow.fits(received) and result.error is None:
        own = session.workspace if session.grants >= READ_ON else None
        result = await supervisor.overflow.spilled(result, own)
    if run is not None and run.streams is not None:
        result = await run.streams.told(result)
    facts["attempt"] = call.attempt
    facts.update(used)
    _record(session, call, facts, result.error, outcome)
    return result


def _replaced(checks: "Checks", call: ToolCall, put_in: Mapping[str, Any], who: str) -> ToolCall | ValidationError:
    """The call with what took the place of its arguments, validated. The model cannot mend what it did not write."""
    valid = checks.arguments.check(put_in)
    if isinstance(valid, ValidationError):
        message = f"The arguments that {who} put in do not fit: {valid.message}"
        return valid.model_copy(update={"message": message, "retryable": False})
    return call._replace(arguments=valid.arguments, packed=valid.packed)


def _remembered(session: "Session", result: ToolResult) -> ToolResult:
    """The result, its values entered into the session's, which stay as small as those of one call may be."""
    values = {**session.values, **result.values}
    if encoded_bytes(values) > VALUES_BYTES:
        message = (
            f"The session's values would be larger than {VALUES_BYTES:,} bytes with those that the call left in "
            "ctx.values; keep large data in a file."
        )
        return result.model_copy(update={**NOTHING, "error": ExecutionError(message=message)})
    session.values.update(result.values)
    return result


def _unknown(session: "Session", name: str, why: str = "") -> UnknownTool:
    known = session.tool_names()
    near = tuple(get_close_matches(str(name), known, n=3, cutoff=0.4))
    hint = f" Did you mean {' or '.join(repr(one) for one in near)}?" if near else ""
    return UnknownTool(message=f"There is no tool named {str(name)[:64]!r}.{hint}{why}", suggestions=near)


def _no_thread(error: NoThread) -> Overloaded:
    return Overloaded(message=str(error), retry_after_s=NO_THREAD_RETRY_S)


def _unseen(error: SandboxError | OSError) -> SandboxUnavailable:
    """The workspace could not be looked at before the call."""
    again_s = SOON_S if error.errno in EXHAUSTED else None
    if isinstance(error, SandboxError):
        message, mechanism, cure = str(error), error.mechanism, error.cure
    else:
        mechanism, cure = "", CURES.get(error.errno or 0, "Make the workspace accessible, or lift the names.")
        message = f"The workspace cannot be looked at for protected names: {error.strerror}. {cure}"
    return SandboxUnavailable(
        message=message, mechanism=mechanism, cure=cure, retryable=again_s is not None, retry_after_s=again_s
    )


def _unusable(error: Exception) -> SandboxUnavailable:
    what, _, cure = str(error).partition(". ")
    return SandboxUnavailable(message=str(error), mechanism="", cure=cure or what)


def _refused(session: "Session", call: ToolCall, tool: Tool[..., Any] | None, error: ToolError) -> ToolResult:
    """A call that never reached a cell."""
    call = call._replace(tool=str(call.tool)[:64])
    version = tool.version if tool is not None else ""
    _record(session, call, {**facts_of(call.tool, version), "attempt": call.attempt}, error, None)
    return ToolResult.build(
        error=error,
        usage=Usage(attempts=call.attempt),
        call_id=call.id,
        tool=call.tool,
        version=version,
        session_id=session.id,
        sandbox=session.sandbox,
    )


def facts_of(tool: str, version: str) -> dict[str, Any]:
    """What the records of calls say, as of a first attempt that has used nothing."""
    return {"tool": tool, "version": version, "attempt": 1, "error": None, **NOTHING_USED}


def _record(
    session: "Session", call: ToolCall, facts: dict[str, Any], error: ToolError | None, outcome: Outcome | None
) -> None:
    kind = "call"
    del facts["attempts"]  # that is for `Usage`
    if error is not None:
        facts["error"], facts["message"] = error.kind, error.message
        kind = "denied" if error.kind == "permission_denied" else "call"
    if outcome is not None and outcome.ending == "error":
        trace = outcome.payload.get("traceback")
        if isinstance(trace, str):
            trace = facts["traceback"] = trace[-TRACEBACK_CHARS:]
            _log.info("call %s of %s failed:\n%s", call.id, call.tool, trace)
    record = Record.now(kind, session.id, call.id, facts)
    supervisor = session.supervisor
    supervisor.journal.write(record)
    supervisor.metrics.write(record)
