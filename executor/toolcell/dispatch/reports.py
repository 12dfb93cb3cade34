"""Pass a tool's progress and log entries, while its call runs, to the caller, the log and the journal."""

import inspect
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextvars import Context, copy_context
from typing import Any, ParamSpec, TypeVar, cast

from toolcell.rules.redaction import Redaction
from toolcell.sessions.supervisor_lifetime import WITHIN
from toolcell.store.journal import Journal, Record
from toolcell.wire.budget import Charge
from toolcell_tools.interrupts import Guard, pass_on
from toolcell_tools.preview import printable

P = ParamSpec("P")
T = TypeVar("T")
OnProgress = Callable[[str, float | None], Awaitable[None] | None]
OnLog = Callable[[str, str, Mapping[str, Any]], None]
"""Receives what a tool logs: `on_log("info", "message", fields)`. It runs on the event loop and must return at once."""
_log = logging.getLogger("toolcell.tool")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def in_callers_context(callback: Callable[P, T]) -> Callable[P, T]:
    """The callback, run with the context variables of the current task: a notebook shows its output below the cell that
    made the call. A coroutine that it returns keeps them over each `await`."""
    context = copy_context()

    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        answer = context.run(callback, *args, **kwargs)
        return cast("T", _InContext(context, answer)) if inspect.isawaitable(answer) else answer

    return called


class _InContext:
    """An awaitable, each step of which runs in a context."""

    def __init__(self, context: Context, answer: Awaitable[None]) -> None:
        self._context = context
        self._answer = answer

    def __await__(self) -> Generator[Any, Any, None]:
        self._context.run(WITHIN.set, WITHIN.get())  # of the task that awaits, not of the caller
        steps = self._context.run(self._answer.__await__)
        step: Callable[..., Any] = steps.send
        value: object = None
        while True:
            try:
                wanted = self._context.run(step, value)
            except StopIteration:
                return
            try:
                step, value = steps.send, (yield wanted)
            except BaseException as error:
                step, value = steps.throw, error


def tell_progress(
    in_background: Callable[..., None],
    on_progress: OnProgress | None,
    call_id: str,
    message: str,
    fraction: float | None,
    charged: Callable[[], Charge] | None = None,
) -> None:
    """Report a call's progress to its caller. An exception of the callback is only logged. Queued reports are
    `charged`."""
    if on_progress is None:
        return
    try:
        answer = on_progress(message, fraction)
    except BaseException as error:
        pass_on(error)
        _log.exception("on_progress of call %s raised", call_id)
        return
    if inspect.isawaitable(answer):
        in_background(_awaited, call_id, answer, None if charged is None else charged())


async def _awaited(call_id: str, answer: Awaitable[None], charge: Charge | None) -> None:
    try:
        async with Guard():
            await answer
    except Exception:
        _log.exception("on_progress of call %s raised", call_id)
    finally:
        if charge is not None:
            charge.release()


def tell_log(
    journal: Journal,
    session_id: str,
    call_id: str,
    tool: str,
    level: str,
    message: str,
    fields: Mapping[str, Any],
    on_log: OnLog | None,
    secrets: Redaction | None,
) -> None:
    """Write a tool's log entry without the secrets to the log and the journal, and pass it to the caller as it is."""
    said: dict[str, Any] = {"message": message, "fields": dict(fields)}
    if secrets is not None:
        said = secrets.value(said)
    line = printable(said["message"])  # a tool must not forge other log lines
    _log.log(_LEVELS.get(level, logging.INFO), "%s: %s", tool, line, extra={"toolcell": said["fields"]})
    data = {"tool": tool, "level": level, **said}
    journal.write(Record("log", session_id, call_id, data))
    if on_log is not None:
        try:
            on_log(level, message, fields)
        except BaseException as error:
            pass_on(error)
            _log.exception("on_log of call %s raised", call_id)
