"""Pass a tool's progress and log entries, while its call runs, to the caller, the log and the journal."""

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from toolcell.budget import Charge
from toolcell.journal import Journal, Record
from toolcell_tools.interrupts import Guard, pass_on
from toolcell_tools.preview import printable

OnProgress = Callable[[str, float | None], Awaitable[None] | None]
OnLog = Callable[[str, str, Mapping[str, Any]], None]
"""Receives what a tool logs: `on_log("info", "message", fields)`. It runs on the event loop and must return at once."""
_log = logging.getLogger("toolcell.tool")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


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
    on_log: OnLog | None = None,
) -> None:
    """Write a tool's log entry to the log and the journal, and pass it to the caller."""
    line = printable(message)  # a tool must not forge other log lines
    _log.log(_LEVELS.get(level, logging.INFO), "%s: %s", tool, line, extra={"toolcell": fields})
    data = {"tool": tool, "level": level, "message": message, "fields": fields}
    journal.write(Record("log", session_id, call_id, data))
    if on_log is not None:
        try:
            on_log(level, message, fields)
        except BaseException as error:
            pass_on(error)
            _log.exception("on_log of call %s raised", call_id)
