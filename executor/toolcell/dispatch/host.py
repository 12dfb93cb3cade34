"""Running a host tool: in the supervisor's own process, outside any sandbox, within its deadline.

It is the user's own code, and its declaration says where it runs. What it raises is an error result all the same. A
synchronous one runs in a thread, which nobody can end: after the deadline its result is dropped. What it returns is
held to what a cell's result is held to: depth, elements, encoded size.
"""

import inspect
import logging
import time
import traceback
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

import anyio
import pydantic

from toolcell.backends.threads import NO_THREAD_RETRY_S, NoThread, in_thread
from toolcell.call import ToolCall
from toolcell.pool.run import NOTHING_USED, Outcome, Used
from toolcell.wire.frames import Field, encoded_bytes
from toolcell.wire.messages import VALUES_BYTES, Progress
from toolcell.wire.protocol import result_fits
from toolcell_tools.context import HostContext
from toolcell_tools.definition import Tool
from toolcell_tools.encode import encode_json, encode_return
from toolcell_tools.failures import ToolFailure, Unencodable

if TYPE_CHECKING:
    from toolcell.session import OnProgress, Session

MESSAGE_CHARS = 4_000
PROGRESS_CHARS = 1_000
_log = logging.getLogger("toolcell.tool")


async def run(
    session: "Session",
    tool: Tool[..., Any],
    call: ToolCall,
    *,
    wall_s: float,
    result_bytes: int,
    on_progress: "OnProgress | None",
) -> tuple[Outcome, Used]:
    """How the call ended, and what it has used; raises only what cancels the caller's own task."""
    started = time.monotonic()
    reporter = _Reporter(session, call, on_progress, started + wall_s)
    context = HostContext(
        call_id=call.id,
        session_id=session.id,
        agent_id=session.agent_id,
        session=session,
        reporter=reporter,
        deadline=started + wall_s,
        config=dict(session.config),
        values=dict(session.values),
    )
    outcome = Outcome(ending="timeout")
    try:
        with anyio.move_on_after(wall_s):
            async with session.host_turn if tool.declaration.annotations.sequential else nullcontext():
                outcome = await _attempt(tool, call, context, session.host_threads)
    finally:
        reporter.ended = True
    if not result_fits(dict(outcome.payload), result_bytes):
        outcome = Outcome(ending="error", reason="result")
    outcome.progress = reporter.last
    used = NOTHING_USED.copy()
    used["wall_s"] = time.monotonic() - started
    return outcome, used


async def _attempt(
    tool: Tool[..., Any], call: ToolCall, context: HostContext, threads: anyio.CapacityLimiter
) -> Outcome:
    try:
        arguments = tool.bind(call.arguments, context)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        payload: dict[str, Field] = {"field": field}
        return Outcome(ending="error", reason="arguments", message=f"{field}: {first['msg']}", payload=payload)
    began = False

    def run_it() -> tuple[Any]:  # in a tuple, for trio takes no bare coroutine from a thread
        nonlocal began
        began = True
        return (tool.fn(**arguments),)

    try:
        if tool.is_async:
            value = await tool.fn(**arguments)
        else:
            (value,) = await in_thread(run_it, abandon=True, limiter=threads)
            if inspect.isawaitable(value):  # a lambda that calls a client's async method
                value = await value
        encoded = encode_return(tool.encoded(value), ())
        encoded["values"] = values = cast("dict[str, Field]", encode_json(context.values))
        if encoded_bytes(values) > VALUES_BYTES:
            raise Unencodable(f"ctx.values is larger than {VALUES_BYTES:,} bytes; keep large data in a file")
        return Outcome(ending="result", payload=cast("Mapping[str, Field]", encoded))
    except NoThread as error:
        if began or tool.is_async:  # something that the tool has asked for had none
            return _failed("exception", str(error), error, None)
        return Outcome(ending="overloaded", message=str(error), retry_after_s=NO_THREAD_RETRY_S)
    except ToolFailure as failure:
        return _failed("failure", str(failure.message), failure, _data_of(failure))
    except Unencodable as failure:
        return _failed("unencodable", str(failure), failure, None)
    except (Exception, SystemExit) as error:  # a tool does not end the supervisor
        said = str(error)
        name = type(error).__name__
        return _failed("exception", f"{name}: {said}" if said else name, error, None)


def _data_of(failure: ToolFailure) -> Any:
    try:
        return encode_json(failure.data)
    except Unencodable as refusal:
        return f"(the data of the failure could not be sent: {refusal})"


def _failed(reason: str, message: str, error: BaseException, data: Any) -> Outcome:
    payload: dict[str, Field] = {"traceback": "".join(traceback.format_exception(error))[-20_000:], "data": data}
    return Outcome(ending="error", reason=reason, message=message[:MESSAGE_CHARS], payload=payload)


class _Reporter:
    """The context's reporting, straight to the session. After the end of the call it says nothing more."""

    def __init__(self, session: "Session", call: ToolCall, on_progress: "OnProgress | None", deadline: float) -> None:
        self._session = session
        self._call = call
        self._on_progress = on_progress
        self._deadline = deadline
        self.ended = False
        self.last: Progress | None = None

    def progress(self, message: str, fraction: float | None) -> None:
        if not self.ended:
            self.last = Progress(0, str(message)[:PROGRESS_CHARS], fraction)
            self._session.tell_progress(self._on_progress, self._call.id, message, fraction)

    def log(self, message: str, level: str, fields: Mapping[str, Any]) -> None:
        if not self.ended:
            self._session.tell_log(self._call.id, self._call.tool, level, message, fields)

    def remaining(self) -> float:
        return self._deadline - time.monotonic()

    def cancelled(self) -> bool:
        return self.ended
