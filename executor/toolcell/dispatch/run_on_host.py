"""Run a host tool: in the supervisor's own process, outside any sandbox, within its deadline.

A host tool is the user's own code, and its declaration says where it runs. An exception in it becomes an error result.
A synchronous tool runs in a thread, which cannot be killed: at the deadline, and at the close of its session, its
caller gets the error at once, and the log says when the thread has ended. Its result has the same bounds as a cell's:
depth, elements, encoded size.
"""

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal, cast

import anyio
import pydantic

from toolcell.backends.threads import NO_THREAD_RETRY_S, NoThread, in_thread
from toolcell.errors import UsageError
from toolcell.pool.run import NOTHING_USED, Outcome, Used
from toolcell.rules.call import ToolCall
from toolcell.rules.redaction import Redaction
from toolcell.sessions.tree import Work
from toolcell.wire.frames import Field, encoded_bytes
from toolcell.wire.messages import VALUES_BYTES, Progress
from toolcell.wire.protocol import result_fits
from toolcell_sandbox.limits import GRACE_SHARE
from toolcell_tools.confirmation import Confirmation, asked_in, given_or_asked, went_on
from toolcell_tools.context import HostContext
from toolcell_tools.definition import Tool
from toolcell_tools.encode import encode_json
from toolcell_tools.failures import Unencodable
from toolcell_tools.interrupts import Guard, asyncio_task, cause_of, pass_on
from toolcell_tools.raised import Raised, invalid, raised
from toolcell_tools.returned import encode_return
from toolcell_tools.signals import Signal, checked_signals, undeclared

from .call_context import CallContext
from .call_errors import closed
from .call_record import record_without_run, secrets_for_record, secrets_of
from .callbacks import tell_log, tell_progress
from .route import Route
from .run_in_cell import Ran
from .validate import leave_batch

PROGRESS_CHARS = 1_000
_log = logging.getLogger("toolcell.tool")


async def on_host(
    context: CallContext, route: Route, call: ToolCall, wall_s: float, confirm: list[Field] | None = None
) -> Ran:
    """Run the call of a host tool. `confirm` are the confirmations so far; None if the tool does not confirm. A call
    whose caller goes meanwhile is recorded."""
    services, caller = context.services, context.caller
    if context.taken:
        context.taken.clear()  # it begins, so its approvals are used up
    try:
        with caller.life.doing(f"the host tool {route.tool.name!r}") as work:
            outcome, used = await _run(context, route, call, work, wall_s, confirm)
    except BaseException:
        if context.fate is not None:
            context.fate.delivered, context.fate.effect = True, not route.declaration.annotations.read_only
        record_without_run(services, caller, call, route.tool.version, closed(call.tool, caller.life), {})
        raise
    return Ran(route, outcome, used, secrets_for_record(services, caller, call))


async def _run(
    context: CallContext, route: Route, call: ToolCall, work: Work, wall_s: float, confirm: list[Field] | None
) -> tuple[Outcome, Used]:
    """Run the call. Returns how it ended and what it used. Raises only the cancellation of the caller's own task."""
    tool, caller, info = route.tool, context.caller, context.caller.data.info
    started = time.monotonic()
    grace_s = min(wall_s * GRACE_SHARE, caller.profile.limits.grace_s)
    reporter = _HostReporter(context, tool, call, started + wall_s, started + wall_s - grace_s, work, confirm)
    given = HostContext(
        call_id=call.id,
        session_id=caller.id,
        agent_id=caller.agent_id,
        session=context.session,
        reporter=reporter,
        deadline=started + wall_s,
        config=dict(info.config),
        values=dict(info.values),
        user_id=info.user_id,
        invocation_id=info.invocation_id,
        context=info.context,
    )
    outcome = Outcome(ending="timeout")
    try:
        with anyio.move_on_after(wall_s), work.scope:
            async with caller.life.host_turn if tool.declaration.annotations.sequential else nullcontext():
                outcome = await _attempt(context, tool, call, given, reporter, work)
    finally:
        reporter.ended = True
    if work.scope.cancelled_caught:
        outcome = Outcome(ending="cancelled")
    if not result_fits(dict(outcome.payload), route.limits.result_bytes):
        outcome = Outcome(ending="error", reason="result")
    used: Used = {**NOTHING_USED, "wall_s": time.monotonic() - started}
    return replace(outcome, progress=reporter.last), used


async def _attempt(
    context: CallContext,
    tool: Tool[..., Any],
    call: ToolCall,
    given: HostContext[object],
    reporter: "_HostReporter",
    work: Work,
) -> Outcome:
    try:
        arguments = tool.bind(call.arguments, given)
    except pydantic.ValidationError as error:
        return _answer(invalid(error))
    except BaseException as error:  # of a validator
        pass_on(error)
        return _answer(raised(error))
    began = ended = False

    def run_it() -> tuple[Any]:  # in a tuple, because trio accepts no bare coroutine from a thread
        nonlocal began, ended
        began = True
        try:
            return (tool.fn(**arguments),)
        finally:
            ended = True

    try:
        async with Guard():
            if tool.is_async:
                value = await _in_own_task(partial(tool.fn, **arguments), work)
            else:
                try:
                    (value,) = await in_thread(run_it, abandon=True, limiter=context.services.host_threads)
                finally:
                    if began and not ended:
                        context.services.in_background(_outlived, call, lambda: ended)
                if inspect.isawaitable(value):  # a lambda that calls a client's async method
                    value = await _in_own_task(lambda: value, work)
            if reporter.has_asked:
                raise went_on(tool.name)
            encoded = encode_return(tool.encoded(value), ())
            signals = [*encoded.pop("signals", ()), *reporter.signals]
            if signals:
                encoded["signals"] = checked_signals(tool.name, tool.signals, signals)
            encoded["values"] = values = cast("dict[str, Field]", encode_json(given.values))
            if encoded_bytes(values) > VALUES_BYTES:
                raise Unencodable(f"ctx.values is larger than {VALUES_BYTES:,} bytes; keep large data in a file")
            return Outcome(ending="result", payload=cast("Mapping[str, Field]", encoded))
    except Exception as error:
        if isinstance(error, NoThread) and not began and not tool.is_async:  # else the tool could start no thread
            return Outcome(ending="overloaded", message=str(error), retry_after_s=NO_THREAD_RETRY_S)
        if isinstance(error, _CancelledItself):
            return Outcome(ending="cancelled")
        asked = asked_in(cause_of(error))
        if asked is not None:
            return Outcome(ending="error", reason="confirm", message=asked.hint, payload={"payload": asked.payload})
        return _answer(raised(error))


class _CancelledItself(Exception):
    """A tool has requested the cancellation of its own task."""


async def _in_own_task(run: Callable[[], Awaitable[Any]], work: Work) -> Any:
    """Await the tool in a task of its own, so that a request to cancel it does not cancel its caller. A tool may make
    such a request, and before Python 3.13 a failed TaskGroup leaves one behind (gh-116720)."""
    result: Any = None
    error: BaseException | None = None

    async def attempt() -> None:
        nonlocal result, error
        leave_batch()
        work.goes_on_in_this_task()
        try:
            result = await run()
        except BaseException as failure:
            task = asyncio_task()
            is_own = isinstance(failure, asyncio.CancelledError) and task is not None and task.cancelling() > 0
            error = _CancelledItself() if is_own else failure

    async with anyio.create_task_group() as tasks:  # it raises the caller's own cancellation
        tasks.start_soon(attempt)
    if error is not None:
        raise error
    return result


async def _outlived(call: ToolCall, has_ended: Callable[[], bool]) -> None:
    """Log that a call's thread outlives the call, and when it has ended: a thread cannot be killed."""
    started, pause_s = time.monotonic(), 0.05
    _log.warning("the thread of call %s of the host tool %s goes on after the call was ended", call.id, call.tool)
    while not has_ended():
        await anyio.sleep(pause_s)
        pause_s = min(1.0, pause_s * 2)
    _log.info("the thread of call %s of %s has ended %.1f s later", call.id, call.tool, time.monotonic() - started)


def _answer(answer: Raised) -> Outcome:
    return Outcome(ending="error", reason=answer.reason, message=answer.message, payload=answer.payload)


class _HostReporter:
    """The context's reporter, which reports directly to the session. It drops reports after the end of the call."""

    def __init__(
        self,
        context: CallContext,
        tool: Tool[..., Any],
        call: ToolCall,
        deadline: float,
        tidy_at: float,
        work: Work,
        confirm: list[Field] | None,
    ) -> None:
        self._context = context
        self._tool = tool
        self._confirm = cast("list[Mapping[str, Any]] | None", confirm)
        self.signals: list[Signal] = []
        self.has_asked = False
        self._call = call
        self._deadline = deadline
        self._tidy_at = tidy_at
        self._work = work
        self.ended = False
        self.last: Progress | None = None
        self._redaction: Redaction | Literal[False] | None = False  # until the first log

    def progress(self, message: str, fraction: float | None) -> None:
        if not self.ended:
            self.last = Progress(0, str(message)[:PROGRESS_CHARS], fraction)
            context = self._context
            redaction = context.caller.secrets.redaction
            if redaction is not None:
                message = redaction.text(str(message))
                self.last = self.last._replace(message=message[:PROGRESS_CHARS])
            if context.trace is not None:
                context.trace.progressed(self.last.message, fraction)
            tell_progress(context, message, fraction)

    def log(self, message: str, level: str, fields: Mapping[str, Any]) -> None:
        if not self.ended:
            if self._redaction is False:
                self._redaction = secrets_of(self._context.caller, self._call)
            tell_log(self._context, self._call.tool, level, message, fields, self._redaction)

    def span(self, name: str, attributes: Mapping[str, Any]) -> AbstractContextManager[None]:
        trace = self._context.trace
        return nullcontext() if trace is None or self.ended else trace.span(name, attributes)

    def signal(self, signal: Signal) -> None:
        if signal.kind not in self._tool.signals:
            raise UsageError(f"{undeclared(self._tool.name, signal.kind)}.")
        self.signals.append(signal)

    def confirm(self, hint: str, payload: object) -> Confirmation:
        return given_or_asked(self, self._tool.name, self._confirm, hint, payload)

    def remaining(self) -> float:
        return self._deadline - time.monotonic()

    def cancelled(self) -> bool:
        return self._work.looked_at() or self.ended or time.monotonic() >= self._tidy_at
