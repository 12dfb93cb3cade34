"""The pipeline: from a tool call to its result, every step in the order in which it happens.

Nothing here raises for what a tool, a model or a sandbox does. What a repair replaced is validated again, so what was
checked is what runs.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from toolcell.call import ToolCall
from toolcell.journal import Record
from toolcell.pool.run import Outcome, Run
from toolcell.sessions.protection import Watch
from toolcell.wire.frames import encoded_bytes
from toolcell.wire.messages import VALUES_BYTES
from toolcell_sandbox.errors import SandboxError
from toolcell_tools.definition import Tool
from toolcell_tools.errors import (
    ExecutionError,
    PermissionDenied,
    SandboxUnavailable,
    ToolError,
    UnknownTool,
    ValidationError,
)
from toolcell_tools.result import ToolResult, Usage
from toolcell_tools.toolsets import ToolsetError

from . import approval, hooks, host
from .audit import trespass
from .permission import denial, mutates, of_provider, permit
from .pool import in_pool
from .present import NOTHING, fitting, left_by_hooks
from .result import result_of

if TYPE_CHECKING:
    from toolcell.session import Session

Repair = Callable[[ValidationError], Awaitable[dict[str, Any]]]
TRACEBACK_CHARS = 20_000
MAX_ATTEMPTS = 3  # ADR-0004: at most two retries of a call whose arguments do not validate
_log = logging.getLogger("toolcell.tool")


async def dispatch(
    session: "Session", call: ToolCall, *, timeout: float | None, repair: Repair | None, on_progress: Any
) -> ToolResult:
    """Run the call, letting `repair` mend its arguments up to twice; the last result stands."""
    while True:
        result = await attempt(session, call, timeout=timeout, on_progress=on_progress)
        error = result.error
        if repair is None or not isinstance(error, ValidationError) or not error.retryable:
            return result
        if call.attempt >= MAX_ATTEMPTS:
            return result
        call = replace(call, arguments=await repair(error), attempt=call.attempt + 1)


async def attempt(session: "Session", call: ToolCall, *, timeout: float | None, on_progress: Any) -> ToolResult:
    """One attempt, step by step."""
    # resolve
    try:
        tool = await session.offered(call.tool)
    except ToolsetError as error:
        return _refused(session, call, None, _unknown(session, call.tool, f" {error}"))
    if tool is None:
        elsewhere = session.of_provider(call.tool)
        unknown = _unknown(session, call.tool) if elsewhere is None else of_provider(elsewhere)
        return _refused(session, call, None, unknown)
    # validate
    arguments = session.validator(tool).check(call.arguments)
    if isinstance(arguments, ValidationError):
        return _refused(session, call, tool, arguments)
    call = ToolCall(call.id, call.tool, arguments, call.attempt, call.session, tool.declaration)
    # before hooks
    if session.hooks:
        hooked, denied = await hooks.before(session.hooks, call)
        if denied is not None:
            return _refused(session, hooked, tool, denied)
        replaced = _replaced(session, tool, hooked, "a hook")  # always: one may have changed them in place
        if isinstance(replaced, ValidationError):
            return _refused(session, hooked, tool, replaced)
        call = replaced
    # permit
    route = session.route(tool)
    denied = denial(tool.declaration, session.kind, route.grants)
    if denied is not None:
        return _refused(session, call, tool, denied)
    verdict = permit(session.policy, call, tool, session.info)
    if isinstance(verdict, PermissionDenied):
        return _refused(session, call, tool, verdict)
    # approve
    if verdict:
        approved = await approval.ask(session, tool, call, verdict)
        if isinstance(approved, PermissionDenied):
            return _refused(session, call, tool, approved)
        if approved is not call.arguments:
            replaced = _replaced(session, tool, call.with_arguments(approved), "the approver")
            if isinstance(replaced, ValidationError):
                return _refused(session, call, tool, replaced)
            call = replaced
    # grants
    changes = mutates(call, tool)
    if isinstance(changes, PermissionDenied):
        return _refused(session, call, tool, changes)
    if not changes:
        route = session.route(tool, mutates=False)
    # run
    wall_s = timeout if timeout is not None else tool.timeout or route.limits.wall_s
    run: Run | None = None
    watch: Watch | None = None
    if tool.placement == "host":
        limit = route.limits.result_bytes
        outcome = await host.run(session, tool, call, wall_s=wall_s, result_bytes=limit, on_progress=on_progress)
    else:
        if route.guarded is not None:
            try:
                watch = await route.guarded.enter(
                    kept=session.has_kept_writers(route) or bool(route.spec.key.kept_tool)
                )
            except SandboxError as error:
                refusal = SandboxUnavailable(message=str(error), mechanism=error.mechanism, cure=error.cure)
                return _refused(session, call, tool, refusal)
        run = session.new_run(route, call, wall_s, on_progress, watch)
        outcome = await in_pool(session, run, route.guarded, watch)
    # render
    result = result_of(
        outcome,
        tool.declaration,
        route.limits,
        call_id=call.id,
        session_id=session.id,
        arguments=call.arguments,
        sandbox=route.sandbox,
        attempts=call.attempt,
    )
    if result.error is not None and outcome.ending == "result" and run is not None and run.cell is not None:
        run.cell.condemn(run, result.error.message)
    elif watch is not None and outcome.ending in ("result", "error"):
        denied = trespass(tool.declaration, watch)
        if denied is not None:
            result = result.model_copy(update={**NOTHING, "error": denied})
    schema = session.output_schema(tool) if outcome.ending == "result" else None
    if result.error is None:
        result = fitting(result, schema)
    if result.values:
        result = _remembered(session, result)
    # after hooks
    if session.hooks:
        returned = result
        result = await hooks.after(session.hooks, call, returned)
        if returned.error is not None or result.output is not returned.output:
            schema = session.output_schema(tool)
        result = left_by_hooks(result, tool, route.limits, schema)  # always: one may have changed it in place
    if result.error is None:
        result = await session.spilled(result, received=0 if session.hooks else outcome.received_bytes)
    _record(session, call, result, outcome)
    return result


def _replaced(session: "Session", tool: Tool[..., Any], call: ToolCall, who: str) -> ToolCall | ValidationError:
    """The call with what took the place of its arguments, validated. The model cannot mend what it did not write."""
    arguments = session.validator(tool).check(call.arguments)
    if isinstance(arguments, ValidationError):
        message = f"The arguments that {who} put in do not fit: {arguments.message}"
        return arguments.model_copy(update={"message": message, "retryable": False})
    return call.with_arguments(arguments)


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


def _refused(session: "Session", call: ToolCall, tool: Tool[..., Any] | None, error: ToolError) -> ToolResult:
    """A call that never reached a cell."""
    result = ToolResult.build(
        error=error,
        usage=Usage(attempts=call.attempt),
        call_id=call.id,
        tool=str(call.tool)[:64],
        version=tool.version if tool is not None else "",
        session_id=session.id,
        sandbox=session.sandbox,
    )
    _record(session, call, result, None)
    return result


def _record(session: "Session", call: ToolCall, result: ToolResult, outcome: Outcome | None) -> None:
    data: dict[str, Any] = {
        "tool": result.tool,
        "version": result.version,
        "attempt": call.attempt,
        "error": result.error.kind if result.error is not None else None,
        "wall_s": result.usage.wall_s,
        "queue_s": result.usage.queue_s,
        "cpu_s": result.usage.cpu_s,
        "max_rss_bytes": result.usage.max_rss_bytes,
        "memory_bytes": result.usage.memory_bytes,
        "processes": result.usage.processes,
    }
    if result.error is not None:
        data["message"] = result.error.message
    if outcome is not None and outcome.ending == "error":
        trace = outcome.payload.get("traceback")
        if isinstance(trace, str):
            trace = data["traceback"] = trace[-TRACEBACK_CHARS:]
            _log.info("call %s of %s failed:\n%s", call.id, call.tool, trace)
    kind = "denied" if result.error is not None and result.error.kind == "permission_denied" else "call"
    record = Record(kind, session.id, call.id, data, time.time())
    session.journal.write(record)
    session.metrics.write(record)
