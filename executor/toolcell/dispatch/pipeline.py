"""The pipeline: from a tool call to its result, every step in the order in which it happens.

Nothing here raises for what a tool, a model or a sandbox does. What a repair replaced is validated again, so what was
checked is what runs.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from toolcell.call import ToolCall
from toolcell.journal import Record
from toolcell.pool.run import Outcome, Run
from toolcell_tools.definition import Tool
from toolcell_tools.errors import ToolError, UnknownTool, ValidationError
from toolcell_tools.result import ToolResult, Usage

from .permission import denial
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
        if repair is None or not isinstance(error, ValidationError) or call.attempt >= MAX_ATTEMPTS:
            return result
        call = ToolCall(call.id, call.tool, await repair(error), call.attempt + 1)


async def attempt(session: "Session", call: ToolCall, *, timeout: float | None, on_progress: Any) -> ToolResult:
    """One attempt, step by step."""
    # resolve
    tool = session.offered(call.tool)
    if tool is None:
        return _refused(session, call, None, _unknown(session, call.tool))
    # validate
    arguments = session.validator(tool).check(call.arguments)
    if isinstance(arguments, ValidationError):
        return _refused(session, call, tool, arguments)
    # permit
    route = session.route(tool)
    denied = denial(tool.declaration, session.kind, route.grants)
    if denied is not None:
        return _refused(session, call, tool, denied)
    # run
    run = session.new_run(route, call, arguments, timeout, on_progress)
    outcome = await _in_pool(session, run)
    # render
    result = result_of(
        outcome,
        tool.declaration,
        run.limits,
        call_id=call.id,
        session_id=session.id,
        sandbox=route.sandbox,
        attempts=call.attempt,
    )
    if result.error is not None and outcome.ending == "result" and run.cell is not None:
        run.cell.condemn(run, result.error.message)
    if result.error is None:
        result = await _presented(session, tool, result)
    if result.values:
        session.values.update(result.values)
    _record(session, call, result, outcome)
    return result


async def _in_pool(session: "Session", run: Run) -> Outcome:
    """Submit and wait. If the waiting task is cancelled, the call is ended behind it and nothing is left running."""
    session.pool.submit(run)
    try:
        if run.outcome is None:
            await run.waiter.wait()
    except BaseException:
        session.pool.cancel(run)
        raise
    assert run.outcome is not None
    return run.outcome


async def _presented(session: "Session", tool: Tool[..., Any], result: ToolResult) -> ToolResult:
    """A success, held against the tool's output schema, and written out where it is too long for a model."""
    schema = session.output_schema(tool)
    misfit = None if schema is None else schema.misfit(result.output)
    if misfit is not None:
        return result.model_copy(update={"error": misfit, "output": None, "display": "", "content": [], "values": {}})
    return await session.spilled(result)


def _unknown(session: "Session", name: str) -> UnknownTool:
    known = session.tool_names()
    near = tuple(get_close_matches(str(name), known, n=3, cutoff=0.4))
    hint = f" Did you mean {' or '.join(repr(one) for one in near)}?" if near else ""
    return UnknownTool(message=f"There is no tool named {str(name)[:64]!r}.{hint}", suggestions=near)


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
